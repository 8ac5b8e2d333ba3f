"""What must be remembered of a running testbed, so that a later command can attach to it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.pki import write_private

_FILE = "state.json"


@dataclass(slots=True, kw_only=True)
class GuestState:
    """One QEMU guest: its disks and kubelet port stay the same over reboots."""

    name: str
    kernel_release: str
    kubelet_port: int
    extra_qemu: list[str] = field(default_factory=list)
    memory_mib: int = 512
    kernels: list[str] = field(default_factory=list)
    """The kernels whose modules its disk holds."""


@dataclass(slots=True, kw_only=True)
class GroundState:
    """One ground: which parts it has, and the names, ports and secrets that were drawn for it."""

    name: str
    by_hand: bool
    """Started by `up`, so any command may end it; others belong to the process that started them."""
    control_plane: bool
    nodes: bool
    engine: bool
    ports: dict[str, int]
    admin_token: str
    admission: list[str] = field(default_factory=list)
    """Admission plugins of the API server, beside those that it has in each testbed."""
    engine_kind: str = ""
    """The name of the engine's kind."""
    binaries: str = ""
    """The folder of the Kubernetes programs."""
    host_node_name: str = ""
    registry_user: str = ""
    registry_password: str = ""
    kernels: list[str] = field(default_factory=list)
    preloaded: list[str] = field(default_factory=list)
    guests: dict[str, GuestState] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the state; a reader sees the old one or the new one, never half of it."""
        fresh = folder / f".{_FILE}.{os.getpid()}"
        write_private(fresh, json.dumps(asdict(self), indent=1))
        fresh.replace(folder / _FILE)

    @classmethod
    def load(cls, folder: Path) -> GroundState:
        """Read the state of a running testbed."""
        raw: dict[str, Any] = json.loads((folder / _FILE).read_text())
        guests = {name: GuestState(**guest) for name, guest in raw.pop("guests").items()}
        return cls(**raw, guests=guests)


def is_ground(folder: Path) -> bool:
    """Return whether a folder holds a testbed."""
    return (folder / _FILE).is_file()
