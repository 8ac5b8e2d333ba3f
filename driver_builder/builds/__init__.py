"""How does a build request become an image under its tag, and why did it fail? Queue, builders, pipeline."""
