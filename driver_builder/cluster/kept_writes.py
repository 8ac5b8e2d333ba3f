"""Writes to the API server whose answers go into the cache at once.

Place in the flow: ``execute`` and ``report`` write through it. The next reconcile sees what they wrote, before a watch
reports it. When the watch does, it waits for the answer, and is not news.
"""

from driver_builder.cluster.cluster_cache import ClusterCache
from kube_api.client import MERGE_PATCH, Client, JsonPatch, Listing, Object


class KeptWrites:
    """A :class:`kube_api.client.Writer` that keeps what it wrote."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client = client
        self._cache = cache
        self.changes = 0
        """How many writes changed what a reconcile reads."""

    def get(self, path: str) -> Object:
        """Read one object."""
        return self._client.get(path)

    def list(self, path: str, *, field_selector: str = "") -> Listing:
        """Read a collection as it is now, not as it is kept."""
        return self._client.list(path, field_selector=field_selector)

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""
        return self._kept(self._client.create(path, body))

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object."""
        with self._cache.writing(path):
            return self._kept(self._client.replace(path, body), is_new=False)

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply."""
        with self._cache.writing(path):
            return self._kept(self._client.apply(path, body, field_manager=field_manager, force=force))

    def patch(self, path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
        """Patch an object."""
        with self._cache.writing(path):
            return self._kept(self._client.patch(path, body, content_type=content_type), is_new=False)

    def delete(self, path: str, *, uid: str | None = None, propagation: str = "Background") -> Object:
        """Delete an object."""
        with self._cache.writing(path):
            answer = self._client.delete(path, uid=uid, propagation=propagation)
            if answer.get("kind") != "Status":
                return self._kept(answer, is_new=False)
            gone = (answer.get("details") or {}).get("uid") or uid
            if gone:
                self.changes += self._cache.deleted(gone)
            return answer

    def _kept(self, answer: Object, *, is_new: bool = True) -> Object:
        self.changes += self._cache.wrote(answer, is_new=is_new)
        return answer
