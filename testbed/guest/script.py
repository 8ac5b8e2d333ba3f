"""Run pieces of shell on a kernel, and read what each did: a guest without disk or cluster, its root in memory.

The entries must bring /bin/sh, mount, echo, mkdir and poweroff (busybox does).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run
from testbed.errors import CommandError, OverdueError
from testbed.guest import cpio
from testbed.guest.emulation import KERNEL_PARAMETERS, QEMU

BOOT_TIMEOUT = 600.0
_RELEASE = re.compile(r"^\[\[kernel (\S+)\]\]$", re.MULTILINE)
_SECTION = re.compile(r"\[\[(\w+)\n(.*?)\1 (\d+)\]\]\n", re.DOTALL)

told: list[str] = []
"""The releases that the kernels of this process's scripts told of themselves, until a reader clears it."""

# What a container runtime gives a pod, then the sections, one after the other. Marks are printed around each of them.
_INIT = """#!/bin/busybox sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
read -r release </proc/sys/kernel/osrelease
echo "[[kernel $release]]"
section() {{
    echo "[[$1"
    sh -c "$2" 2>&1
    echo "$1 $?]]"
}}
{sections}
poweroff -f
"""


@dataclass(frozen=True, slots=True)
class Section:
    """What one piece of shell did in the guest."""

    output: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The sections that ended, in order, and all that the console showed.

    A kernel that dies ends the sections early: which are missing is the caller's to see.
    """

    sections: dict[str, Section]
    console: str


def run_script(
    vmlinuz: Path,
    entries: Iterable[cpio.Entry],
    sections: Mapping[str, str],
    folder: Path,
    *,
    devices: Sequence[str] = (),
    memory_mib: int = 256,
    kernel_options: str = "",
    qemu_words: Sequence[str] = (),
    timeout: float = BOOT_TIMEOUT,
) -> Ran:
    """Boot a kernel on the entries and run the sections, named by words; ``folder`` takes the archive."""
    lines = "".join(f"section {name} {shlex.quote(command)}\n" for name, command in sections.items())
    initramfs = folder / "initramfs"
    initramfs.write_bytes(
        cpio.archive(
            [
                *entries,
                *(cpio.folder(name) for name in ("proc", "sys", "dev", "tmp")),
                cpio.character_device("dev/console", 5, 1),
                cpio.program("init", _INIT.format(sections=lines)),
            ]
        )
    )
    argv: list[str | Path] = [
        *QEMU,
        *("-cpu", "max", "-m", str(memory_mib), "-serial", "stdio", "-monitor", "none"),
        *("-kernel", vmlinuz, "-initrd", initramfs),
        *("-append", f"{KERNEL_PARAMETERS} quiet loglevel=0 {kernel_options}"),
        *qemu_words,
        *(word for device in devices for word in ("-device", device)),
    ]
    console = _console(argv, timeout)
    told.extend(_RELEASE.findall(console.replace("\r", "")))
    return parse_console(console)


def _console(argv: Sequence[str | Path], timeout: float) -> str:
    """Run QEMU, and return what the guest printed, also by the end of its time.

    Raises:
        CommandError: QEMU failed twice.
    """
    try:
        return run(argv, timeout=timeout)
    except OverdueError as error:
        return error.output
    except CommandError:
        # A kernel that panics ends QEMU with status 0; QEMU 7.2 itself dies in one of some hundred boots.
        return run(argv, timeout=timeout)


def parse_console(console: str) -> Ran:
    """Read what the sections printed, and how each ended."""
    text = console.replace("\r", "")
    return Ran(
        sections={name: Section(output, int(code)) for name, output, code in _SECTION.findall(text)}, console=text
    )
