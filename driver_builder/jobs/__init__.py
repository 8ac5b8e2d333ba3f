"""Builds in Kubernetes Jobs, without a container engine."""
