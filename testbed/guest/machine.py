"""QEMU's command line for one guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.guest.emulation import KERNEL_PARAMETERS, QEMU

EDU_DEVICE_ID = "edu0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a guest's QEMU is given."""

    kernel: Path
    initramfs: Path
    disks: tuple[Path, Path]
    """Root file system, then container images."""
    console_log: Path
    shell_socket: Path
    qmp_socket: Path
    kubelet_port: int
    memory_mib: int
    extra: Sequence[str] = ()


def command_line(machine: Machine) -> list[str]:
    """Return the command that boots a guest.

    Emulation is asked for by name: a machine may offer a KVM that cannot run stock kernels, and QEMU does not fall
    back. Later options win in QEMU, so `extra` can choose another CPU model.
    """
    disks = [
        word
        for number, disk in enumerate(machine.disks)
        for word in (
            *("-drive", f"file={disk},if=none,id=disk{number},format=raw,cache=unsafe,discard=unmap"),
            *("-device", f"virtio-blk-pci,drive=disk{number}"),
        )
    ]
    return [
        *QEMU,
        # Each miss of the emulated TLB walks the page tables: four levels do.
        *("-cpu", "max,la57=off"),
        *("-smp", "1"),
        *("-m", str(machine.memory_mib)),
        *("-chardev", f"file,id=console,path={machine.console_log},append=on", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=shell,path={machine.shell_socket},server=on,wait=off", "-serial", "chardev:shell"),
        *("-qmp", f"unix:{machine.qmp_socket},server=on,wait=off"),
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initramfs)),
        *("-append", f"{KERNEL_PARAMETERS} quiet net.ifnames=0"),
        *disks,
        *("-netdev", f"user,id=net0,hostfwd=tcp:127.0.0.1:{machine.kubelet_port}-:{machine.kubelet_port}"),
        *("-device", "virtio-net-pci,netdev=net0,romfile="),
        *machine.extra,
    ]
