"""Kernels that no node runs yet: node pools, prebuilds, and the gate before a reboot. Pure."""
