"""A worker beside an agent with cards: the real program on this machine, which labels its Node with the test's NVML."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nvml import SONAME
from tests.support.real_parts.gpu_use import REPORTS, WORKERS_ROOT
from tests.support.real_parts.nvidia_node import Node

_BOOT_ID = "proc/sys/kernel/random/boot_id"


@contextmanager
def worker(node: Node) -> Iterator[Path]:
    """Have it run, with what it logs in this file; at the end its labels are gone."""
    root = node.folder / WORKERS_ROOT
    libraries = root / f"usr/lib/{os.uname().machine}-linux-gnu"
    for folder in (libraries, root / "proc/driver/nvidia", root / "sys/bus/pci/devices", node.folder / REPORTS):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(node.folder / SONAME, libraries)
    boot_id = root / _BOOT_ID
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text(Path("/", _BOOT_ID).read_text())
    flags = {"root": root, "node-name": node.place.node, "kubeconfig": node.place.ground.kubeconfig}
    named = [f"--{flag}={value}" for flag, value in flags.items()]
    log = node.folder / "worker.log"
    command = [sys.executable, "-m", "nfd_worker"]
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "run", *named, "--port=0", "--label-sources=gpu"],
            env={**os.environ, **node.machine.environment()}, stderr=file,
        )  # fmt: skip
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run([*command, "unpublish", *named[1:]], check=True)
