"""Keeps /dev/char/MAJOR:MINOR, which udev makes for other drivers' devices, and nobody for NVIDIA's nodes.

runc gives systemd a container's devices by these paths; a device without one is lost when systemd loads its units
again. systemd follows the link to learn the numbers: one that leads to a device of other numbers opens that one.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from device_agent.device_nodes.compare import numbers
from device_agent.device_nodes.folder import opened, put_link, status
from device_agent.device_nodes.values import MadeNode, NodeNumbers

_CHAR = "char"
_NUMBERS = re.compile(r"(\d{1,4}):(\d{1,7})", re.ASCII)
_OWN_TARGET = re.compile(r"(?:\.\.|/dev)/(?:nvidia[\w-]{0,20}|nvidia-caps/nvidia-cap\d{1,7})", re.ASCII)


def link_nodes(nodes: Sequence[MadeNode], dev: str) -> list[MadeNode]:
    """Link the nodes that are right, and remove links to such nodes whose numbers are others by now.

    Returns the nodes, with the reason where one has no link, and each link that could not be removed.
    """
    try:
        with opened(dev, _CHAR, make=any(not node.why for node in nodes)) as folder:
            linked = [node if node.why else node._replace(why=_ensure_link(folder, node)) for node in nodes]
            removed = {(node.major, node.minor) for node in nodes if node.why and node.did}
            return linked + list(_outdated(folder, removed))
    except OSError as error:
        why = f"its link cannot be made: /dev/{_CHAR}: {error.strerror}"
        return [node._replace(why=node.why or why) for node in nodes]


def _ensure_link(folder: int, node: MadeNode) -> str:
    """Link a node; returns why that is not possible."""
    name, target = f"{node.major}:{node.minor}", f"../{node.path.removeprefix('/dev/')}"
    try:
        found = status(folder, name)
        if found is not None and not stat.S_ISLNK(found.st_mode):
            return f"/dev/{_CHAR}/{name} is no link: remove it"
        if found is None or _led_to(folder, name) != (node.major, node.minor):
            put_link(folder, name, target)
    except OSError as error:
        return f"its link /dev/{_CHAR}/{name} cannot be made: {error.strerror}"
    return ""


def _led_to(folder: int, name: str) -> NodeNumbers | None:
    """Return the numbers of the character device that a link leads to; None where it leads to none."""
    try:
        found = os.stat(name, dir_fd=folder)
    except OSError:
        return None
    return numbers(found) if stat.S_ISCHR(found.st_mode) else None


def _outdated(folder: int, removed: Collection[NodeNumbers]) -> Iterator[MadeNode]:
    """Remove links to NVIDIA's nodes that lead to other numbers than they are named by; yields those that stay.

    One that leads nowhere stays, unless its node was just removed: nvidia-ctk makes links before there are nodes.
    """
    for name in [entry.name for entry in os.scandir(folder)]:
        named = _NUMBERS.fullmatch(name)
        if not named or not _is_own(folder, name):
            continue
        major, minor = int(named[1]), int(named[2])
        leads_to = _led_to(folder, name)
        if leads_to == (major, minor) or (leads_to is None and (major, minor) not in removed):
            continue
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            why = f"it leads to a device of other numbers and cannot be removed: {error.strerror}"
            yield MadeNode(f"/dev/{_CHAR}/{name}", major, minor, why)


def _is_own(folder: int, name: str) -> bool:
    """Return whether an entry is a link to a node of NVIDIA's driver."""
    with suppress(OSError):
        return _OWN_TARGET.fullmatch(os.readlink(name, dir_fd=folder)) is not None
    return False
