"""Compares what stands at a node's place with the node that belongs there. Pure."""

import os
import stat
from enum import Enum, auto
from typing import NamedTuple

from device_agent.device_nodes.values import WantedNode

_MODE_BITS = 0o777


class Verdict(Enum):
    """What has to be done about a place."""

    RIGHT = auto()
    MISSING = auto()
    OTHER_NUMBERS = auto()
    OTHER_ACCESS = auto()
    """The right device with another mode or owner."""
    NO_DEVICE = auto()
    """A file, folder or link, which somebody has put there: it is not touched."""


class Place(NamedTuple):
    """A place, and in words what is wrong with it; empty when it is right."""

    verdict: Verdict
    why: str = ""


def compare(found: os.stat_result | None, node: WantedNode) -> Place:
    """Judge a place by its status, links not followed; None: nothing is there."""
    if found is None:
        return Place(Verdict.MISSING, "it is missing")
    if not (is_character_device(found) or stat.S_ISBLK(found.st_mode)):
        return Place(Verdict.NO_DEVICE, f"{_kind(found)} is at its place: remove it")
    if not is_character_device(found) or numbers(found) != (node.major, node.minor):
        return Place(Verdict.OTHER_NUMBERS, f"it is {_describe(found)} instead of {node.major}:{node.minor}")
    mode = stat.S_IMODE(found.st_mode) & _MODE_BITS
    if (mode, found.st_uid, found.st_gid) != (node.mode, node.uid, node.gid):
        is_so, has_to_be = _access(mode, found.st_uid, found.st_gid), _access(node.mode, node.uid, node.gid)
        return Place(Verdict.OTHER_ACCESS, f"it has {is_so} instead of {has_to_be}")
    return Place(Verdict.RIGHT)


def is_character_device(found: os.stat_result) -> bool:
    """Return whether it is a node of a character device."""
    return stat.S_ISCHR(found.st_mode)


def numbers(found: os.stat_result) -> tuple[int, int]:
    """Return the major and the minor number of a device."""
    return os.major(found.st_rdev), os.minor(found.st_rdev)


def _describe(found: os.stat_result) -> str:
    major, minor = numbers(found)
    return f"{major}:{minor}" if is_character_device(found) else f"block device {major}:{minor}"


def _access(mode: int, uid: int, gid: int) -> str:
    return f"mode {mode:04o} and owner {uid}:{gid}"


def _kind(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    return "a folder" if stat.S_ISDIR(found.st_mode) else "a file that is no device"
