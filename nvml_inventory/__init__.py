"""What NVML says of a node's NVIDIA GPUs, for the programs that run on each node. Only children of these import it."""
