"""Real drivers times real kernels: what is built, kept, loaded and told by ``bench/driver_matrix.py``."""
