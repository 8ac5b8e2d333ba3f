"""From a build request to an image in the registry: the queue, the engine, the pipeline, and why a build failed."""
