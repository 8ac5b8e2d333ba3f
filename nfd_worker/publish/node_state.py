"""A Node as the API server shows it, read once: what publishing decides on. Pure; used by the publish child alone."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Self

from kube_api.errors import Unreachable
from kube_api.resources import NODES
from nfd_worker.publish.wire import FIELD_MANAGER

Json = dict[str, Any]

METADATA_KIND = "PartialObjectMetadata"
"""What the API server calls an object of which it was asked for the metadata alone."""


class Change(NamedTuple):
    """``body``: a merge patch, empty when nothing has to change; ``notes``: what is left undone, a sentence each."""

    body: Json
    notes: tuple[str, ...] = ()


class NodeState(NamedTuple):
    """The parts of a Node that publishing reads; of its metadata alone, the rest is empty.

    ``taints``: as the server gives them, with ``timeAdded``, so that a taint which stays is sent back unchanged.
    ``managers``: the entries of ``metadata.managedFields``.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[Json, ...]
    managers: tuple[Json, ...]

    @classmethod
    def from_dict(cls, node: Mapping[str, Any]) -> Self:
        """Read a Node.

        Raises:
            Unreachable: when it is not a Node, because something else answered in the API server's place.
        """
        metadata = node.get("metadata")
        if node.get("kind") not in (NODES.kind, METADATA_KIND) or not isinstance(metadata, dict):
            raise Unreachable("the response is not a Node: is there an API server at this address?")
        status, spec = node.get("status") or {}, node.get("spec") or {}
        return cls(
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
            labels=metadata.get("labels") or {},
            annotations=metadata.get("annotations") or {},
            capacity=status.get("capacity") or {},
            allocatable=status.get("allocatable") or {},
            taints=tuple(spec.get("taints") or ()),
            managers=tuple(metadata.get("managedFields") or ()),
        )

    def applied(self, field: str) -> set[str]:
        """Name the keys of ``labels`` or ``annotations`` that our field manager applied last."""
        ours = (entry for entry in self.managers if _is_ours(entry) and entry.get("operation") == "Apply")
        return {key for entry in ours for key in metadata_keys(entry, field)}

    def applied_by_others(self, field: str) -> set[str]:
        """Name the keys of ``labels`` or ``annotations`` that other programs apply: each of them removes its own."""
        theirs = (entry for entry in self.managers if not _is_ours(entry) and entry.get("operation") == "Apply")
        return {key for entry in theirs for key in metadata_keys(entry, field)}

    def writers(self, annotations: Collection[str]) -> set[str]:
        """Name the field managers besides ours that wrote one of these annotations."""
        return {
            entry.get("manager", "")
            for entry in self.managers
            if not _is_ours(entry) and not metadata_keys(entry, "annotations").isdisjoint(annotations)
        }


def metadata_keys(entry: Mapping[str, Any], field: str) -> set[str]:
    """Read from an entry of ``managedFields`` which keys of ``labels`` or ``annotations`` it owns.

    FieldsV1 has ``f:`` before each key, and ``.`` for the map itself.
    """
    fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get(f"f:{field}", {})
    return {key.removeprefix("f:") for key in fields if key.startswith("f:")}


def disown(
    entries: tuple[Json, ...],
    managers: Collection[str],
    *,
    labels: Collection[str],
    annotations: Collection[str],
    operation: str = "Update",
) -> list[Json]:
    """Take labels and annotations out of the entries in which these managers own them, by default by plain updates.

    Server-side apply removes a key only when no other manager owns it. An entry with nothing left goes.
    """
    gone = {"f:labels": {f"f:{key}" for key in labels}, "f:annotations": {f"f:{key}" for key in annotations}}
    return list(_disowned(entries, managers, operation, gone))


def _disowned(
    entries: tuple[Json, ...], managers: Collection[str], operation: str, gone: Mapping[str, set[str]]
) -> Iterator[Json]:
    for entry in entries:
        if entry.get("operation") != operation or entry.get("manager") not in managers:
            yield entry
            continue
        fields = dict(entry.get("fieldsV1", {}))
        metadata = {
            name: _without(part, gone[name]) if name in gone else part
            for name, part in fields.get("f:metadata", {}).items()
        }
        fields["f:metadata"] = {name: part for name, part in metadata.items() if part or name not in gone}
        left = {name: part for name, part in fields.items() if part or name != "f:metadata"}
        if left:
            yield {**entry, "fieldsV1": left}


def _without(part: Mapping[str, Any], keys: set[str]) -> Json:
    left = {key: value for key, value in part.items() if key not in keys}
    return {} if set(left) == {"."} and set(part) != {"."} else left


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("manager") == FIELD_MANAGER)
