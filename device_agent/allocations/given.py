"""What devices were when a container got them, and whether they are the same now. Pure.

The kubelet keeps the answer of Allocate and uses it again at each start of a container, also after a boot. By then a
card that is lost may have moved the others: the path that was this container's card is another one's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from device_agent.errors import AllocationRefused, FileInvalid, StartRefused
from kube_api.text import printable

Identity = tuple[str, ...]
"""What the files of a device are, as :class:`device_agent.devices.model.Unit` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a device was when a container got it.

    ``shares``: how many containers could have its unit then; 0: not known, it was given by an agent that did not say.
    ``at``: when, in seconds of the boot clock; None: before this boot, or not known.
    """

    identity: Identity
    shares: int = 0
    at: float | None = None


Given = Mapping[tuple[str, str], Allocation]
"""Resource and id -> what the device was; the oldest first."""

VERSION = 1
"""Also of files without shares and times: those who know neither read files that have them."""
MAX_GIVEN = 8192
"""Devices that are remembered: the oldest are forgotten. One resource has at most half as many."""
LONGEST_IDENTITY = 2048
"""Characters of what one device was."""
_LONGEST_NAME = 512
_MOST_SHARES = 4096
"""As many devices as a resource may have."""
_LAST = 1e12
_REMEDY = "delete the pod: it gets its devices anew"


def with_new(given: Given, resource: str, new: Mapping[str, Allocation]) -> Given:
    """Remember devices of a resource as well, each in the place of what it was before.

    Raises:
        AllocationRefused: when it is not known what one is, or it has more text than can be remembered.
    """
    for name, allocation in new.items():
        identity = allocation.identity
        if not identity:
            raise AllocationRefused(f"device {name} of {resource}: it is not known which files are its own")
        if sum(map(len, identity)) > LONGEST_IDENTITY or not all(map(_is_text, identity)):
            raise AllocationRefused(f"device {name} of {resource}: the names of its files cannot be remembered")
    keys = {(resource, name): allocation for name, allocation in new.items()}
    kept = {key: allocation for key, allocation in given.items() if key not in keys} | keys
    return dict(islice(kept.items(), max(0, len(kept) - MAX_GIVEN), None))


def check_start(resource: str, name: str, given: Given, now: Identity) -> None:
    """Let a container start with a device that is what it was. ``now``: what it is; empty if that is not known.

    Raises:
        StartRefused: when it is another one, or either is not known.
    """
    allocation = given.get((resource, name))
    device = f"device {printable(name, 100)} of {resource}"
    if allocation is None:
        raise StartRefused(f"{device}: it is not remembered which files it was given as: {_REMEDY}")
    was = allocation.identity
    if not now:
        raise StartRefused(
            f"{device} was given as {_shown(was)}, and it is not known what it is now: the start is tried again; "
            f"if that does not help, {_REMEDY}"
        )
    if was != now:
        raise StartRefused(f"{device} was given as {_shown(was)}, and is {_shown(now)} now: {_REMEDY}")


def dump_given(given: Given, boot: str) -> bytes:
    """Write what is remembered. ``boot``: the id of this boot, whose times these are."""
    entries = [_plain(resource, name, one) for (resource, name), one in given.items()]
    return json.dumps({"version": VERSION, "boot": boot, "given": entries}, separators=(",", ":")).encode()


def parse_given(content: bytes, boot: str) -> Given:
    """Read what is remembered; times of another boot mean nothing in this one.

    Raises:
        FileInvalid: says what is wrong.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileInvalid("it is not JSON") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise FileInvalid(f"it is not of version {VERSION}")
    entries = document.get("given")
    if not isinstance(entries, list) or len(entries) > MAX_GIVEN:
        raise FileInvalid(f"'given' is not a list of at most {MAX_GIVEN}")
    is_this_boot = document.get("boot", "") == boot
    return dict(_entry(entry, is_this_boot) for entry in entries)


def _plain(resource: str, name: str, one: Allocation) -> dict[str, Any]:
    known = {"shares": one.shares or None, "at": one.at}
    plain = {"resource": resource, "id": name, "identity": one.identity}
    return plain | {key: value for key, value in known.items() if value is not None}


def _entry(entry: Any, is_this_boot: bool) -> tuple[tuple[str, str], Allocation]:
    if not isinstance(entry, dict):
        raise FileInvalid("an entry is not an object")
    identity = entry.get("identity")
    if not isinstance(identity, list) or not identity or not all(map(_is_text, identity)):
        raise FileInvalid("an identity is not a list of texts")
    if sum(map(len, identity)) > LONGEST_IDENTITY:
        raise FileInvalid("an identity is too long")
    shares, at = entry.get("shares", 0), entry.get("at")
    if type(shares) is not int or not 0 <= shares <= _MOST_SHARES:
        raise FileInvalid(f"a number of shares is not one of 0 to {_MOST_SHARES}")
    if at is not None and not (type(at) in (int, float) and 0 <= at < _LAST):
        raise FileInvalid("a time is not one")
    allocation = Allocation(identity=tuple(identity), shares=shares, at=at if is_this_boot else None)
    return (_name(entry, "resource"), _name(entry, "id")), allocation


def _name(entry: Mapping[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not _is_text(value) or len(value) > _LONGEST_NAME:
        raise FileInvalid(f"an entry has no {field}")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _shown(identity: Identity) -> str:
    return printable(", ".join(identity), 300)
