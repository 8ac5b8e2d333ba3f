"""The device nodes of NVIDIA's driver: which there have to be, and making them. Nothing else on a node does.

NVIDIA's open kernel modules (``kernel-open/``) create no class device for a GPU, so neither devtmpfs nor udev makes a
node. Small on purpose: what the container ``nvml`` keeps in memory may import it.
"""
