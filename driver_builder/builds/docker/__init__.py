"""Builds with a Docker Engine."""
