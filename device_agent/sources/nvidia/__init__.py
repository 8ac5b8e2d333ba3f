"""NVIDIA's GPUs and their MIG instances as units, from what the container ``nvml`` says. Imported only where needed."""
