"""The client of container registries, and what is stored there besides images."""
