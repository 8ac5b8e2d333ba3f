"""Reads what the kernel and NVIDIA's driver say of device numbers. Decides nothing.

A card's ``information`` is answered under the driver's own locks (``nv_procfs_read_gpu_info`` of nv-procfs.c asks the
GPU for its UUID and VBIOS): a driver that hangs may keep the reader for ever. Read in a process that may be killed.
"""

import os
import re

from device_agent.device_nodes.values import CardFiles, Proc
from kube_api.text import first_few, printable

MAX_CARDS = 64
"""More than the driver has: NV_MAX_DEVICES of nvlimits.h is 32."""
MAX_CAPABILITIES = 1024
"""More than there can be: 32 cards with seven instances of two files each are 448."""

_MAX_DEVICES_BYTES = 65536
_MAX_DRIVER_BYTES = 16384
_MAX_SHOWN = 3

_DRIVER = "proc/driver/nvidia"
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII | re.IGNORECASE)
_CARD = re.compile(r"gpu\d{1,3}", re.ASCII)
_GPU_INSTANCE = re.compile(r"gi\d{1,3}", re.ASCII)
_COMPUTE_INSTANCE = re.compile(r"ci\d{1,3}", re.ASCII)


class _Reader:
    """Reads files below a root, and collects what could not be read."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.troubles: list[str] = []

    def text(self, path: str, most: int) -> str:
        """Return the text of a file of at most ``most`` bytes; empty when it is not there."""
        try:
            content = _read(f"{self._root}/{path}", most + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.troubles.append(f"/{path} cannot be read: {error.strerror}")
            return ""
        if len(content) > most:
            self.troubles.append(f"/{path} has more than {most} bytes")
            return ""
        return content.decode(errors="replace")

    def names(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """List the entries of a folder with such a name; none when it is not there."""
        try:
            names = [entry.name for entry in os.scandir(f"{self._root}/{folder}")]
        except FileNotFoundError:
            return []
        except OSError as error:
            self.troubles.append(f"/{folder} cannot be listed: {error.strerror}")
            return []
        return sorted(name for name in names if pattern.fullmatch(name))


def read_proc(root: str = "/") -> Proc:
    """Read /proc/devices and /proc/driver/nvidia below a root. Never raises for what a host has.

    The layout: ``params``, ``gpus/<PCI address>/information`` (nv-procfs.c), ``capabilities/mig/{config,monitor}`` and
    ``capabilities/gpu<minor>/mig/gi<N>/{access,ci<N>/access}`` (the tables of nv-caps.c).
    """
    reader = _Reader(root)
    return Proc(
        devices=reader.text("proc/devices", _MAX_DEVICES_BYTES),
        params=reader.text(f"{_DRIVER}/params", _MAX_DRIVER_BYTES),
        cards=tuple(_cards(reader)),
        capabilities=_capabilities(reader),
        why=printable(first_few(reader.troubles, _MAX_SHOWN, separator="; ")),
    )


def _cards(reader: _Reader) -> list[CardFiles]:
    addresses = reader.names(f"{_DRIVER}/gpus", _PCI)
    if len(addresses) > MAX_CARDS:
        reader.troubles.append(f"/{_DRIVER}/gpus has more than {MAX_CARDS} cards")
    return [
        CardFiles(address, reader.text(f"{_DRIVER}/gpus/{address}/information", _MAX_DRIVER_BYTES))
        for address in addresses[:MAX_CARDS]
    ]


def _capabilities(reader: _Reader) -> dict[str, str]:
    folder = f"{_DRIVER}/capabilities"
    paths = ["mig/config", "mig/monitor"]
    for card in reader.names(folder, _CARD):
        for gi in reader.names(f"{folder}/{card}/mig", _GPU_INSTANCE):
            instance = f"{card}/mig/{gi}"
            paths.append(f"{instance}/access")
            paths += [f"{instance}/{ci}/access" for ci in reader.names(f"{folder}/{instance}", _COMPUTE_INSTANCE)]
    if len(paths) > MAX_CAPABILITIES:
        reader.troubles.append(f"/{folder} has more than {MAX_CAPABILITIES} files")
    texts = {path: reader.text(f"{folder}/{path}", _MAX_DRIVER_BYTES) for path in paths[:MAX_CAPABILITIES]}
    return {path: text for path, text in texts.items() if text}


def _read(path: str, most: int) -> bytes:
    """Read at most so many bytes: files of /proc say neither their size nor all in one answer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while len(content) < most and (part := os.read(descriptor, most - len(content))):
            content += part
        return content
    finally:
        os.close(descriptor)
