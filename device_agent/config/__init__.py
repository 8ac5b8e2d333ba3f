"""What can be set: flags, environment, and the file that describes resources."""

DEFAULT_NVML_SOCKET = "/run/device-agent/nvml.sock"
"""Where the container ``nvml`` listens, and the agent finds it."""
