"""device-agent: offers a node's devices to pods, by the kubelet's device plugin API."""

__version__ = "0.1.0"
