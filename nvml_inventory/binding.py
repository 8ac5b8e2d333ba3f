"""NVIDIA's Python package ``pynvml``, which an installation may lack."""

from typing import Any

try:
    import pynvml  # type: ignore[import-untyped]
except ImportError:
    pynvml = None

nvml: Any = pynvml
"""The package; None without it."""
