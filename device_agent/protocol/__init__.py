"""The kubelet's device plugin API, ``v1beta1``: its messages, and how they are written. Pure."""
