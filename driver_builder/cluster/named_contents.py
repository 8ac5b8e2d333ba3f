"""ConfigMaps and Secrets that drivers name: read again when they may have changed, and not before.

Place in the flow: ``observe`` reads sources, templates and certificates through it. Which version a followed ConfigMap
has is known from its metadata. Secrets are not followed: one is read again after ten minutes, one that could not be
read after half a minute.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from driver_builder.cluster.cluster_cache import ClusterCache
from kube_api.client import Client, Object
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
        client: Client,
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
        self._follow(path)
        known = self._known.get(path)
        if known is None or not self._holds(path, known):
            known = self._known[path] = self._read(path)
        if isinstance(known.answer, KubeApiError):
            raise known.answer
        return known.answer

    def sweep(self) -> None:
        """Forget what nobody has asked for since the last time."""
        self._known = {path: known for path, known in self._known.items() if path in self._asked}
        self._asked = set()
        for item in self._cache.namespaces:
            item.named_config_maps &= {
                path.rpartition("/")[2] for path in self._known if path.startswith(_folder(item.namespace))
            }

    def _follow(self, path: str) -> None:
        for item in self._cache.namespaces:
            if path.startswith(_folder(item.namespace)):
                item.named_config_maps.add(path.rpartition("/")[2])

    def _read(self, path: str) -> _Known:
        try:
            answer: Object | NotFound | Forbidden = self._client.get(path)
        except (NotFound, Forbidden) as error:
            answer = error
        version = "" if isinstance(answer, KubeApiError) else str(answer["metadata"].get("resourceVersion", ""))
        return _Known(version, self._clock(), answer)

    def _holds(self, path: str, known: _Known) -> bool:
        for item in self._cache.namespaces:
            if path.startswith(_folder(item.namespace)):
                name = path.rpartition("/")[2]
                may_hold = item.config_maps.is_trusted and not isinstance(known.answer, Forbidden)
                return may_hold and known.version == item.config_map_version(name)
        is_refused = isinstance(known.answer, KubeApiError)
        return self._clock() - known.at < (min(REFUSED_SECONDS, self._seconds) if is_refused else self._seconds)


def _folder(namespace: str) -> str:
    return f"{CONFIG_MAPS.path(namespace=namespace)}/"
