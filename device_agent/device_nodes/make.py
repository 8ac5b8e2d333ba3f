"""Makes the nodes that are wanted below /dev, and the links to them in /dev/char.

A node is made under another name, gets its owner and mode there, and takes its place by a rename: nobody sees a
half-made one. Nothing at a place is followed, and what is no device there is not touched. One node's error stops no
other one.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from device_agent.device_nodes.compare import Place, Verdict, compare, is_character_device, numbers
from device_agent.device_nodes.folder import opened, put_node, remove_half_made, status
from device_agent.device_nodes.links import link_nodes
from device_agent.device_nodes.values import MadeNode, Wanted, WantedNode
from device_agent.device_nodes.wanted import strangers
from kube_api.text import first_few, printable

_DEV = "/dev"
_NAMES = {
    "": re.compile(r"nvidia(\d{1,3}|ctl|-modeset|-uvm|-uvm-tools)", re.ASCII),
    "nvidia-caps": re.compile(r"nvidia-cap\d{1,7}", re.ASCII),
}
"""Folder below /dev -> the names of nodes there that are judged."""
_USABLE = (Verdict.RIGHT, Verdict.OTHER_ACCESS)
_MAX_SHOWN = 3


class _Folder(NamedTuple):
    """An open folder: the paths in it begin with ``prefix``, ``nodes`` belong in it, ``writes``: it may be changed."""

    descriptor: int
    prefix: str
    nodes: Mapping[str, WantedNode]
    writes: bool


def make_nodes(wanted: Wanted, dev: str = _DEV) -> tuple[MadeNode, ...]:
    """Make and replace nodes and their links; remove nodes that are a stranger's by now. May be repeated.

    Returns each wanted node with what came of it, and behind them the nodes and links that were or should be removed.
    Raises nothing for what a host may have: ``why`` says it for each node.
    """
    return tuple(link_nodes(_judge(wanted, dev, writes=True), dev))


def look_at_nodes(wanted: Wanted, dev: str = _DEV) -> tuple[MadeNode, ...]:
    """Return the same without writing anything. Mode, owner and links are no reason against a node here."""
    return tuple(_judge(wanted, dev, writes=False))


def _judge(wanted: Wanted, dev: str, *, writes: bool) -> list[MadeNode]:
    return [made for name in _NAMES for made in _in_folder(name, wanted, dev, writes=writes)]


def _in_folder(name: str, wanted: Wanted, dev: str, *, writes: bool) -> list[MadeNode]:
    prefix = f"{_DEV}/{name}/" if name else f"{_DEV}/"
    below = {node.path.removeprefix(prefix): node for node in wanted.nodes if node.path.startswith(prefix)}
    nodes = {entry: node for entry, node in below.items() if "/" not in entry}
    is_made = writes and any(not node.forbidden for node in nodes.values())
    try:
        with opened(dev, name, make=is_made) as descriptor:
            folder = _Folder(descriptor, prefix, nodes, writes)
            entries = [entry.name for entry in os.scandir(descriptor)]
            if writes:
                remove_half_made(descriptor, entries, _NAMES[name])
            outdated = list(_outdated(folder, filter(_NAMES[name].fullmatch, entries), wanted))
            return [_ensure_node(folder, entry, node) for entry, node in nodes.items()] + outdated
    except OSError as error:
        why = f"it is missing: {prefix.rstrip('/')}: {error.strerror}"
        return [_result(node, why) for node in nodes.values()]


def _ensure_node(folder: _Folder, name: str, node: WantedNode) -> MadeNode:
    """Make a node, unless it is there or must not be made."""
    place = Place(Verdict.MISSING)
    try:
        place = compare(status(folder.descriptor, name), node)
        may_write = folder.writes and not node.forbidden
        if place.verdict is Verdict.RIGHT or (place.verdict in _USABLE and not may_write):
            return _result(node)
        if place.verdict is Verdict.NO_DEVICE or not may_write:
            return _result(node, "; ".join(part for part in (place.why, node.forbidden) if part))
        put_node(folder.descriptor, name, node)
    except OSError as error:
        return _result(node, f"{place.why}, and cannot be made: {error.strerror}".removeprefix(", and "))
    return _result(node, did="made" if place.verdict is Verdict.MISSING else f"replaced: {place.why}")


def _outdated(folder: _Folder, names: Iterable[str], wanted: Wanted) -> Iterator[MadeNode]:
    """Remove nodes that no loaded driver of NVIDIA's has, and that are a stranger's device by now.

    What is nobody's stays: it cannot be opened, and its driver may come back with the same numbers.
    """
    for name in sorted(set(names) - set(folder.nodes)):
        found = status(folder.descriptor, name)
        if found is None or not is_character_device(found):
            continue
        path, (major, minor) = f"{folder.prefix}{name}", numbers(found)
        if drivers := strangers(path, major, wanted.majors):
            whose = printable(f"it is a device of {first_few(sorted(drivers), _MAX_SHOWN)} now")
            yield _removed(folder, name, MadeNode(path, major, minor, whose), may_remove=wanted.may_remove)


def _removed(folder: _Folder, name: str, node: MadeNode, *, may_remove: bool) -> MadeNode:
    if not folder.writes or not may_remove:
        return node
    try:
        os.unlink(name, dir_fd=folder.descriptor)
    except OSError as error:
        return node._replace(why=f"{node.why}, and cannot be removed: {error.strerror}")
    return node._replace(why=f"{node.why}, and was removed", did=f"removed: {node.why}")


def _result(node: WantedNode, why: str = "", did: str = "") -> MadeNode:
    return MadeNode(node.path, node.major, node.minor, why, did, node.capability)
