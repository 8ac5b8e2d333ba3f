"""The DriverContainer object: what an admin asks for and the status that we last wrote, as a frozen value.

``parse`` is pure. An invalid spec becomes :class:`InvalidDriver` with a message that names the field,
its value and the remedy (``spec_parser``); the object itself stays readable so that its status can say so.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_cache import SpecCache
from driver_builder.api.spec_parser import parse_spec
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InvalidDriver
from driver_builder.model.driver_key import DriverKey, driver_key
from kube_api import names
from kube_api.text import bounded_token

Json = dict[str, Any]

FINALIZER = f"{names.GROUP}/cleanup"

MAX_DIGESTS = 100
MAX_FINGERPRINTS = 1000
_FINGERPRINT = re.compile(r"[^\s,]{1,80}")
_DIGEST = re.compile(r"\bsha256:[0-9a-f]{64}\b")

MAX_NAMES_LENGTH = 56
"""``<namespace>.<name>.ready`` is the name part of a label key, which has at most 63 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContainer:
    """One DriverContainer. ``spec`` is an error if it is invalid; ``status`` is what we last wrote."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: DriverSpec | InvalidDriver
    status: Json
    rebuild: str | None
    paused: bool
    deleting: bool
    has_finalizer: bool
    created_at: float = 0.0
    """Seconds since the epoch."""
    accepted_digests: frozenset[str] = frozenset()
    """Images that an admin accepts although their tag named another image before."""
    undone: frozenset[str] = frozenset()
    """Fingerprints of what an admin does not want on nodes, although the spec says so."""

    @property
    def key(self) -> DriverKey:
        """``namespace/name``."""
        return driver_key(self.namespace, self.name)

    @property
    def plugin_account(self) -> str:
        """The service account (``namespace/name``) that the pods of its plugin are to have; empty for none."""
        plugin = self.spec.device_plugin if isinstance(self.spec, DriverSpec) else None
        return f"{self.namespace}/{plugin.account}" if plugin is not None and plugin.account is not None else ""

    @property
    def dra_driver(self) -> str:
        """The driver of dynamic resource allocation that its plugin is; empty for none."""
        plugin = self.spec.device_plugin if isinstance(self.spec, DriverSpec) else None
        return plugin.dra.driver if plugin is not None and plugin.dra is not None else ""


def parse(obj: Json, known: SpecCache | None = None) -> DriverContainer:
    """Read a DriverContainer object as the API server returns it; a spec that is ``known`` is not read again."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    generation = int(metadata.get("generation", 1))
    cache = SpecCache() if known is None else known
    spec = cache.read(metadata["uid"], generation, lambda: _spec(obj))
    return DriverContainer(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=generation,
        spec=spec,
        status=obj.get("status") or {},
        rebuild=bounded_token(annotations.get(names.REBUILD_ANNOTATION) or "") or None,
        paused=annotations.get(names.PAUSE_ANNOTATION) == "true",
        deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or []),
        created_at=_created_at(metadata),
        accepted_digests=_digests(annotations.get(names.ACCEPT_DIGEST_ANNOTATION) or ""),
        undone=_fingerprints(annotations.get(names.UNDO_ROLLOUT_ANNOTATION) or ""),
    )


def _created_at(metadata: Json) -> float:
    text = metadata.get("creationTimestamp")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _digests(text: str) -> frozenset[str]:
    return frozenset(islice((match[0] for match in _DIGEST.finditer(text)), MAX_DIGESTS))


def _fingerprints(text: str) -> frozenset[str]:
    words = (match[0] for match in _FINGERPRINT.finditer(text))
    return frozenset(islice(words, MAX_FINGERPRINTS))


def _spec(obj: Json) -> DriverSpec | InvalidDriver:
    def read() -> DriverSpec | InvalidDriver:
        try:
            check_names(metadata)
            return parse_spec(obj.get("spec") or {})
        except InvalidDriver as error:
            return error

    metadata = obj["metadata"]
    key = driver_key(metadata["namespace"], metadata["name"])
    return contained("driver", key, read, lambda error: InvalidDriver(f"spec: {error}"))


def check_names(metadata: Json) -> None:
    """Check that the names leave room for the ready label.

    Raises:
        InvalidDriver: they do not.
    """
    length = len(metadata["namespace"]) + len(metadata["name"])
    if length > MAX_NAMES_LENGTH:
        raise InvalidDriver(
            f"metadata.name: {metadata['name']!r} and its namespace have {length} characters together; "
            f"the ready label leaves room for {MAX_NAMES_LENGTH}: choose shorter names"
        )
