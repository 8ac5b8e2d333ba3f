"""Our own ``libnvidia-ml.so.1`` (:file:`fake_nvml.c`) and how to build it: the real pynvml runs without a GPU."""

import subprocess
from pathlib import Path

SONAME = "libnvidia-ml.so.1"

_SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(directory: Path) -> Path:
    """Compile the library into a directory for LD_LIBRARY_PATH; needs gcc."""
    library = directory / SONAME
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}")
    subprocess.run(["gcc", *options, "-o", str(library), str(_SOURCE)], check=True)
    return library
