"""Objects in memory that are read as from an API server: those of files, and those of tests. No I/O."""

from collections.abc import Iterator, Mapping

from kube_api.client import Listing, Object, WatchEvent
from kube_api.errors import KubeApiError, NotFound

_VERSION = "1"


class StoredObjects:
    """A :class:`kube_api.client.Collections` of ``objects``, by path; ``errors`` are raised for other paths."""

    def __init__(
        self, objects: Mapping[str, Object] | None = None, errors: Mapping[str, KubeApiError] | None = None
    ) -> None:
        self.objects: dict[str, Object] = dict(objects or {})
        self.errors: dict[str, KubeApiError] = dict(errors or {})

    def get(self, path: str) -> Object:
        """Read an object."""
        if path in self.errors:
            raise self.errors[path]
        if path not in self.objects:
            raise self._missing(path)
        return self.objects[path]

    def _missing(self, path: str) -> NotFound:
        return NotFound(f"GET {path}: 404", status=404)

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Read a collection; a selector names one label, with or without its value, or one field."""
        if path in self.errors:
            raise self.errors[path]
        found = [
            obj
            for where, obj in sorted(self.objects.items())
            if _is_in(path, where) and has_label(obj, label_selector) and _has_field(obj, field_selector)
        ]
        return Listing([{"metadata": obj["metadata"]} for obj in found] if metadata_only else found, _VERSION)

    def pages(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = 500,
    ) -> Iterator[Listing]:
        """Read a collection in one page, whatever the limit."""
        del limit
        yield self.list(path, label_selector=label_selector, field_selector=field_selector, metadata_only=metadata_only)

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        seconds: int = 240,
    ) -> Iterator[WatchEvent]:
        """Give what has changed: nothing does."""
        del path, resource_version, label_selector, field_selector, metadata_only, seconds
        return iter(())


def _is_in(collection: str, path: str) -> bool:
    """Return whether an object is in a collection; that of all namespaces names none."""
    root, _, plural = collection.rpartition("/")
    return path.rpartition("/")[0] == collection or (
        "/namespaces/" not in collection and path.startswith(f"{root}/namespaces/") and path.split("/")[-2] == plural
    )


def has_label(obj: Object, label_selector: str) -> bool:
    """Return whether an object has the label that a selector names, with the value if it names one."""
    key, equals, value = label_selector.partition("=")
    labels = obj["metadata"].get("labels") or {}
    return not key or (labels.get(key) == value if equals else key in labels)


def _has_field(obj: Object, field_selector: str) -> bool:
    field, _, value = field_selector.partition("=")
    part, _, name = field.partition(".")
    return not field or (obj.get(part) or {}).get(name) == value
