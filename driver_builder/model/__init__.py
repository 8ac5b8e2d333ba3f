"""Frozen values that all folders share: kernels, images and their states in a registry, build requests."""
