"""Builds with buildah in Kubernetes Jobs."""
