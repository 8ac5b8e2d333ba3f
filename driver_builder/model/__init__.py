"""What do all rooms speak of? Kernels, images and their states in a registry, build requests. Frozen values."""
