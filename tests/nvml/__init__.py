"""Our own ``libnvidia-ml.so.1`` (:file:`fake_nvml.h`) and how to build it: the real pynvml runs without a GPU.

What it answers is said by a text, as below, or by a :class:`tests.nvml.machine.FakeMachine`, which changes it.
"""

import subprocess
from pathlib import Path

SONAME = "libnvidia-ml.so.1"

DRIVER = "driver 550.54.15\ncuda 12040\n"
H100 = """
gpu
name NVIDIA H100 80GB HBM3
uuid GPU-{n}
pci 00000000:{n}B:00.0
memory 85520809984
compute 9 0
ecc 1
persistence 0
migmode 0
virtualization 0
"""
"""What the library is told of a driver, and of the n-th GPU."""

_SOURCES = sorted(Path(__file__).parent.glob("*.c"))


def build(directory: Path, *more_options: str) -> Path:
    """Compile the library into a directory for LD_LIBRARY_PATH; needs gcc."""
    library = directory / SONAME
    warnings = ("-Wall", "-Wextra", "-Werror")
    options = ("-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-pthread", *warnings, f"-Wl,-soname,{SONAME}")
    subprocess.run(["gcc", *options, *more_options, "-o", str(library), *map(str, _SOURCES)], check=True)
    return library
