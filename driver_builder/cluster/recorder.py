"""Reads from an API server, and keeps what it read: the objects of a snapshot file, as far as they may be in one.

Place in the flow: a command that writes a file lets ``observe`` read through it. What may not be in a file, ConfigMaps
and Secrets, is read and not kept.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from driver_builder.cluster import kept_fields
from driver_builder.cluster.resource_api import GROUP
from kube_api.client import Collections, Listing, Object, WatchEvent
from kube_api.errors import KubeApiError, NotFound, Unreachable
from kube_api.resources import Resource

_VERSIONS = f"/apis/{GROUP}"


class Recorder:
    """A :class:`kube_api.client.Collections` that keeps ``objects``, and ``errors`` in their place, by path."""

    def __init__(self, client: Collections) -> None:
        self.objects: dict[str, Object] = {}
        self.errors: dict[str, KubeApiError] = {}
        self._client = client
        self._hide = kept_fields.Hidden()

    def get(self, path: str) -> Object:
        """Read an object."""
        resource = kept_fields.resource_of(path.rpartition("/")[0])
        with self._noting(path, is_kept=resource is not None or path == _VERSIONS):
            obj = self._client.get(path)
        if resource is not None:
            self._keep(resource, [obj])
        elif path == _VERSIONS:
            self.objects[path] = kept_fields.kept_versions(obj)
        return obj

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Read a collection."""
        items, version = [], ""
        for page in self.pages(
            path, label_selector=label_selector, field_selector=field_selector, metadata_only=metadata_only
        ):
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    def pages(self, path: str, **options: Any) -> Iterator[Listing]:
        """Read a collection, page by page."""
        resource = kept_fields.resource_of(path)
        with self._noting(path, is_kept=resource is not None):
            for page in self._client.pages(path, **options):
                if resource is not None:
                    self._keep(resource, page.items)
                yield page

    def _keep(self, resource: Resource, items: Iterable[Object]) -> None:
        for obj in items:
            path = resource.path(namespace=obj["metadata"].get("namespace"), name=obj["metadata"]["name"])
            self.objects[path] = kept_fields.kept(resource, obj, self._hide)

    def watch(self, path: str, **options: Any) -> Iterator[WatchEvent]:
        """Watch a collection, of which nothing is kept."""
        return self._client.watch(path, **options)

    @contextmanager
    def _noting(self, path: str, *, is_kept: bool) -> Iterator[None]:
        """Keep the error of a request; that something does not exist is known by its absence."""
        try:
            yield
        except Unreachable:
            raise
        except KubeApiError as error:
            if is_kept and not (isinstance(error, NotFound) and kept_fields.resource_of(path) is None):
                self.errors[path] = error
            raise
