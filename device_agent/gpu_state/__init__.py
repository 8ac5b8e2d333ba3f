"""What the container ``nvml`` says of a node's NVIDIA GPUs, and the lines in which it says so over its socket."""
