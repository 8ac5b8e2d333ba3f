"""Where the driver's library is, and loading it before ``pynvml`` asks for it."""

import ctypes
import os
from collections.abc import Iterator

from nvml_inventory.errors import LibraryUnusable

LIBRARY = "libnvidia-ml.so.1"
"""Its SONAME: once it is loaded from anywhere, the loader gives the same one to ``pynvml``, which asks by name."""

_DRIVER_ROOTS = ("", "run/nvidia/driver/")
"""Where a driver is installed: on the host itself, or in the root of a driver container."""

_DIRECTORIES = ("usr/lib/{arch}-linux-gnu", "usr/lib/{arch}-linux-gnu/nvidia/current", "usr/lib64", "usr/lib")
"""Debian and Ubuntu; Debian behind its alternatives, absolute links that lead nowhere below another root; the rest."""

_GKE = "home/kubernetes/bin/nvidia/lib64/" + LIBRARY


def load_library(root: str, library: str) -> bool:
    """Load the driver's library; returns whether there is one.

    ``library``: the one path to take it from; empty for the loader's search path, then the usual places below the root.

    Raises:
        LibraryUnusable: when it is there and cannot be loaded.
    """
    return any(_load(path) for path in ((library,) if library else (LIBRARY, *_paths(root))))


def _paths(root: str) -> Iterator[str]:
    directories = (directory.format(arch=os.uname().machine) for directory in _DIRECTORIES)
    places = [f"{driver_root}{directory}/{LIBRARY}" for directory in directories for driver_root in _DRIVER_ROOTS]
    return (f"{root.rstrip('/')}/{place}" for place in (*places, _GKE))


def _load(path: str) -> bool:
    if "/" in path and not os.access(path, os.F_OK):
        return False
    try:
        ctypes.CDLL(path)
    except OSError as error:
        if str(error).startswith(f"{LIBRARY}: cannot open shared object file"):
            return False
        raise LibraryUnusable(f"{path} cannot be loaded: {error}; is it for this image's C library?") from error
    return True
