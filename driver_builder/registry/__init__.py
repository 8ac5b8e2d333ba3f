"""The client of container registries, and what stands in one beside images."""
