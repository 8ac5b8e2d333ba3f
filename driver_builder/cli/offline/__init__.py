"""Builds without a cluster: what files say in the place of an API server."""
