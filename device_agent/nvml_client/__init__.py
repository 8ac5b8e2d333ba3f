"""The agent's end of the socket of the container ``nvml``."""
