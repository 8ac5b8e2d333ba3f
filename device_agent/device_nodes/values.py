"""The values of the device nodes: what was read, what is wanted, what came of it."""

from collections.abc import Mapping
from typing import NamedTuple

NodeNumbers = tuple[int, int]
"""Major and minor number."""

MajorNames = Mapping[int, frozenset[str]]
"""Major number -> the names under which drivers registered character devices of it."""


class CardFiles(NamedTuple):
    """What the driver says of one card.

    ``pci``: its address, ``0000:3b:00.0``. ``information``: the text of its file; empty where it cannot be read.
    """

    pci: str
    information: str


class Proc(NamedTuple):
    """What of /proc decides on the device nodes, as text; empty where it is not there or cannot be read.

    ``capabilities``: path below ``/proc/driver/nvidia/capabilities`` -> text. ``why``: what cannot be read.
    """

    devices: str
    params: str
    cards: tuple[CardFiles, ...]
    capabilities: Mapping[str, str]
    why: str


class WantedNode(NamedTuple):
    """A character device that the driver has.

    ``path``: ``/dev/nvidia0``. ``mode``: permissions. ``forbidden``: why it must not be made; empty: it may.
    ``capability``: the path of the capability of MIG that it stands for; empty for others.
    """

    path: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int
    forbidden: str = ""
    capability: str = ""


class Wanted(NamedTuple):
    """All nodes that the loaded driver has, and how to know nodes that are another driver's by now.

    ``majors``: those of the loaded drivers. ``may_remove``: nodes with a stranger's numbers may be removed.
    ``why``: why there is no node, or which are missing here; empty when that is all.
    """

    nodes: tuple[WantedNode, ...]
    majors: MajorNames
    may_remove: bool
    why: str


class MadeNode(NamedTuple):
    """A node, and what came of it.

    ``why``: why it cannot be used; empty: it is there and right. ``did``: ``made``, ``replaced`` or ``removed`` with
    the reason; empty when nothing was written. ``capability``: as in :class:`WantedNode`.
    """

    path: str
    major: int
    minor: int
    why: str
    did: str = ""
    capability: str = ""
