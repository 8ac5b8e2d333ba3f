"""NVIDIA's Python package ``pynvml``, which an installation may lack."""

try:
    import pynvml as nvml  # type: ignore[import-untyped]
except ImportError:
    nvml = None
