"""The kubelet's own record of what it gave to which pod, ``kubelet_internal_checkpoint``.

Unlike podresources it has init containers. Pods that have ended stay in it until the kubelet gives a device again, so
it says something about pods alone that still exist. Format: ``pkg/kubelet/cm/devicemanager/checkpoint`` in
kubernetes/kubernetes; until 1.19 ``DeviceIDs`` is a list, since then a map of NUMA nodes to lists. Its checksum is of
a hash of Go's memory, and is not checked.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from device_agent.errors import FileInvalid, UsersUnknown
from device_agent.kept_file import read_kept
from device_agent.users.pods import plain_uid

NAME = "kubelet_internal_checkpoint"
LONGEST = 1 << 23
"""Bytes. It has the answer of Allocate of each container: about two kilobytes for one with a GPU."""
_MOST_ENTRIES = 1 << 16
_LONGEST_NAME = 512


class Entry(NamedTuple):
    """A device that the kubelet gave to a pod. ``pod``: its UID, as :func:`plain_uid` writes it."""

    pod: str
    resource: str
    id: str


def parse_checkpoint(content: bytes) -> tuple[Entry, ...]:
    """Read what the kubelet gave to which pod.

    Raises:
        FileInvalid: it is not in one of the two formats; the message says where.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileInvalid("it is not JSON") from error
    data = document.get("Data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or "PodDeviceEntries" not in data:
        raise FileInvalid("it has no Data.PodDeviceEntries")
    entries = data["PodDeviceEntries"] or []  # null where Go has an empty list
    if not isinstance(entries, list):
        raise FileInvalid("PodDeviceEntries is not a list")
    found: list[Entry] = []
    for entry in entries:
        found += _devices(entry)
        if len(found) > _MOST_ENTRIES:
            raise FileInvalid(f"it has more than {_MOST_ENTRIES} devices")
    return tuple(found)


def of_pods(entries: Iterable[Entry], pods: Collection[str] | None) -> frozenset[tuple[str, str]]:
    """Return resource and id of what pods have that still exist; None: it is not known which do, so all may."""
    return frozenset((one.resource, one.id) for one in entries if pods is None or one.pod in pods)


def read_checkpoint(folder: str) -> tuple[Entry, ...]:
    """Read the checkpoint in the folder of the kubelet's sockets.

    Raises:
        UsersUnknown: it is missing or not valid.
    """
    path = f"{folder.rstrip('/')}/{NAME}"
    try:
        return parse_checkpoint(read_kept(path, LONGEST))
    except OSError as error:
        raise UsersUnknown(f"cannot read {path}: {error.strerror or error}") from error
    except FileInvalid as error:
        raise UsersUnknown(f"{path} is not one that is known here: {error}") from error


def _devices(entry: Any) -> Iterator[Entry]:
    if not isinstance(entry, dict):
        raise FileInvalid("an entry is not an object")
    pod, resource = (_name(entry.get(field), field) for field in ("PodUID", "ResourceName"))
    return (Entry(plain_uid(pod), resource, _name(name, "DeviceIDs")) for name in _ids(entry.get("DeviceIDs") or []))


def _ids(ids: Any) -> Iterator[Any]:
    nodes = list(ids.values()) if isinstance(ids, dict) else [ids]
    for node in nodes:
        if not isinstance(node, list | None):
            raise FileInvalid("DeviceIDs is neither a list nor a map of lists")
        yield from node or ()


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise FileInvalid(f"an entry has no proper {field}")
    return value
