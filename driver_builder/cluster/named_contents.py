"""ConfigMaps and Secrets that drivers name: read again when they may have changed, and not before.

Place in the flow: ``observe`` reads sources, templates and certificates through it. Which version a followed ConfigMap
has is known from its metadata. Secrets are not followed: one is read again after ten minutes, one that could not be
read after half a minute.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from driver_builder.cluster.cluster_cache import ClusterCache, NamespaceCache
from kube_api.client import Object, Reader
from kube_api.errors import Forbidden, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS

SECRET_SECONDS = 600.0
REFUSED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Known:
    version: str
    at: float
    answer: Object | NotFound | Forbidden


class NamedContents:
    """A :class:`kube_api.client.Reader` that remembers; ``seconds`` is how long a Secret is believed."""

    def __init__(
        self,
        client: Reader,
        cache: ClusterCache,
        *,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._seconds = seconds
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._asked: set[str] = set()

    def get(self, path: str) -> Object:
        """Read an object, or give what it is known to be.

        Raises:
            KubeApiError: when it cannot be read.
        """
        self._asked.add(path)
        # Before it is read: a change from then on is news.
        place = self._place(path)
        if place is not None:
            place[0].named_config_maps.add(place[1])
        known = self._known.get(path)
        if known is None or not self._holds(path, known):
            known = self._known[path] = self._read(path)
        if isinstance(known.answer, KubeApiError):
            raise known.answer
        return known.answer

    def sweep(self) -> None:
        """Forget what was not asked for since the last time."""
        self._known = {path: known for path, known in self._known.items() if path in self._asked}
        self._asked = set()
        places = [place for place in map(self._place, self._known) if place is not None]
        for item in self._cache.namespaces:
            item.named_config_maps &= {name for namespace, name in places if namespace is item}

    def _place(self, path: str) -> tuple[NamespaceCache, str] | None:
        """Return the namespace and the name of a ConfigMap that is followed, None for anything else."""
        collection, _, name = path.rpartition("/")
        found = (item for item in self._cache.namespaces if collection == CONFIG_MAPS.path(namespace=item.namespace))
        namespace = next(found, None)
        return None if namespace is None else (namespace, name)

    def _read(self, path: str) -> _Known:
        try:
            answer: Object | NotFound | Forbidden = self._client.get(path)
        except (NotFound, Forbidden) as error:
            answer = error
        version = "" if isinstance(answer, KubeApiError) else str(answer["metadata"].get("resourceVersion", ""))
        return _Known(version, self._clock(), answer)

    def _holds(self, path: str, known: _Known) -> bool:
        place = self._place(path)
        if place is not None:
            namespace, name = place
            may_hold = namespace.config_maps.is_trusted and not isinstance(known.answer, Forbidden)
            return may_hold and known.version == namespace.config_map_version(name)
        is_refused = isinstance(known.answer, KubeApiError)
        return self._clock() - known.at < (min(REFUSED_SECONDS, self._seconds) if is_refused else self._seconds)
