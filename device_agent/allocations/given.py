"""What devices were when a container got them, and whether they are the same now. Pure.

The kubelet keeps the answer of Allocate and uses it again at each start of a container, also after a boot. By then a
card that is lost may have moved the others: the path that was this container's card is another one's.
"""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from device_agent.errors import AllocationRefused, FileInvalid, StartRefused
from kube_api.text import printable

Identity = tuple[str, ...]
"""What the files of a device are, as :class:`device_agent.devices.model.Unit` has it."""
Given = Mapping[tuple[str, str], Identity]
"""Resource and id -> what the device was; the oldest first."""

VERSION = 1
MAX_GIVEN = 8192
"""Devices that are remembered: the oldest are forgotten. One resource has at most half as many."""
LONGEST_IDENTITY = 2048
"""Characters of what one device was."""
_LONGEST_NAME = 512
_REMEDY = "delete the pod: it gets its devices anew"


def with_new(given: Given, resource: str, new: Mapping[str, Identity]) -> Given:
    """Remember devices of a resource as well, each in the place of what it was before.

    Raises:
        AllocationRefused: when it is not known what one is, or it has more text than can be remembered.
    """
    for name, identity in new.items():
        if not identity:
            raise AllocationRefused(f"device {name} of {resource}: it is not known which files are its own")
        if sum(map(len, identity)) > LONGEST_IDENTITY or not all(map(_is_text, identity)):
            raise AllocationRefused(f"device {name} of {resource}: the names of its files cannot be remembered")
    keys = {(resource, name): identity for name, identity in new.items()}
    kept = {key: identity for key, identity in given.items() if key not in keys} | keys
    return dict(islice(kept.items(), max(0, len(kept) - MAX_GIVEN), None))


def check_start(resource: str, name: str, given: Given, now: Identity) -> None:
    """Let a container start with a device that is what it was. ``now``: what it is; empty if that is not known.

    Raises:
        StartRefused: when it is another one, or either is not known.
    """
    was = given.get((resource, name))
    device = f"device {printable(name, 100)} of {resource}"
    if was is None:
        raise StartRefused(f"{device}: it is not remembered which files it was given as: {_REMEDY}")
    if not now:
        raise StartRefused(
            f"{device} was given as {_shown(was)}, and it is not known what it is now: the start is tried again; "
            f"if that does not help, {_REMEDY}"
        )
    if was != now:
        raise StartRefused(f"{device} was given as {_shown(was)}, and is {_shown(now)} now: {_REMEDY}")


def dump_given(given: Given) -> bytes:
    """Write what is remembered."""
    entries = [{"resource": resource, "id": name, "identity": identity} for (resource, name), identity in given.items()]
    return json.dumps({"version": VERSION, "given": entries}, separators=(",", ":")).encode()


def parse_given(content: bytes) -> Given:
    """Read what is remembered.

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
    return dict(map(_entry, entries))


def _entry(entry: Any) -> tuple[tuple[str, str], Identity]:
    if not isinstance(entry, dict):
        raise FileInvalid("an entry is not an object")
    identity = entry.get("identity")
    if not isinstance(identity, list) or not identity or not all(map(_is_text, identity)):
        raise FileInvalid("an identity is not a list of texts")
    if sum(map(len, identity)) > LONGEST_IDENTITY:
        raise FileInvalid("an identity is too long")
    return (_name(entry, "resource"), _name(entry, "id")), tuple(identity)


def _name(entry: Mapping[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not _is_text(value) or len(value) > _LONGEST_NAME:
        raise FileInvalid(f"an entry has no {field}")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _shown(identity: Identity) -> str:
    return printable(", ".join(identity), 300)
