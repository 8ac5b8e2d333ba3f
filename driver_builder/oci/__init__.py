"""Images and registries: read, changed, signed, described, pushed and fetched."""
