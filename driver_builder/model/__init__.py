"""Frozen values that everybody speaks of: kernels, images and what a registry says of them, requests for builds."""
