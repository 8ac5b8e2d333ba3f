"""What may go wrong with one exchange of HTTP: kinds of faults, classes of exchanges, and who is next. Pure.

Place in the flow: ``schedule`` plans faults, a ``FaultProxy`` asks its :class:`Script` about each exchange.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from urllib.parse import urlsplit


class Fault(StrEnum):
    """A fault of one exchange."""

    CUT_BEFORE = "cut before the request"
    """The server never hears of it."""
    CUT_MIDWAY = "cut in the request"
    """The server has half of it."""
    CUT_AFTER = "cut after the request"
    """The server has done it, and nobody hears the answer."""
    TRUNCATE = "truncated answer"
    CORRUPT = "corrupt answer"
    OTHER_DIGEST = "another digest"
    OTHER_CONTENT = "other content"
    """Content of the right form that is not what its digest says."""
    DELAY = "delay"
    DRIP = "drip"
    SILENCE = "silence"
    """A watch that is open and brings nothing, until :meth:`FaultProxy.speak`."""
    UNAUTHORIZED = "401"
    GONE = "410"
    TOO_MANY = "429"
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"


STATUS = {
    Fault.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    Fault.GONE: HTTPStatus.GONE,
    Fault.TOO_MANY: HTTPStatus.TOO_MANY_REQUESTS,
    Fault.SERVER_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    Fault.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Faults that are an answer in the server's place."""

RETRY_AFTER_SECONDS = 1


class Exchange(StrEnum):
    """What an exchange is about."""

    LEASE = "lease"
    WATCH = "watch"
    LIST = "list"
    READ = "read"
    WRITE = "write"
    BUILD = "build"
    SAVE = "save"
    MANIFEST = "manifest"
    """A manifest that a registry gives: a fault of its content waits for one."""
    CONFIG = "config"
    """As a manifest, the config of an image."""


_API_COLLECTION = re.compile(r"/(?:nodes|pods|daemonsets|drivercontainers|configmaps|events)$")
_ENGINE = re.compile(r"^/(?:v[0-9.]+/)?(?P<what>build$|images/.+/get$|containers/.+/archive$|_ping|version)")


def exchange_of(method: str, target: str) -> Exchange:
    """Classify a request to an API server, a registry or an engine by its method and target."""
    parts = urlsplit(target)
    path = parts.path
    if "/leases" in path:
        return Exchange.LEASE
    if "watch=true" in parts.query:
        return Exchange.WATCH
    engine = _ENGINE.match(path)
    if engine is not None and engine["what"] == "build":
        return Exchange.BUILD
    if engine is not None and engine["what"].startswith("images"):
        return Exchange.SAVE
    if method in ("GET", "HEAD"):
        return Exchange.LIST if _API_COLLECTION.search(path) else Exchange.READ
    return Exchange.WRITE


def content_of(method: str, target: str, status: int, content: bytes) -> Exchange | None:
    """Classify what a registry gives; None for what is no JSON, or no content."""
    if method != "GET" or status != HTTPStatus.OK or not content.startswith(b"{"):
        return None
    if "/manifests/" in target:
        return Exchange.MANIFEST
    return Exchange.CONFIG if "/blobs/" in target else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault for the exchange after ``skip`` others of the classes in ``on``."""

    fault: Fault
    on: frozenset[Exchange]
    skip: int = 0

    def __str__(self) -> str:
        return f"{self.fault} on {'/'.join(sorted(self.on))} after {self.skip}"


class Script:
    """The faults that are to come, and those that came. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[tuple[PlannedFault, int]] = []
        self.delivered: list[PlannedFault] = []

    def arm(self, faults: Iterable[PlannedFault]) -> None:
        """Add faults to those that are to come."""
        with self._lock:
            self._planned += [(fault, fault.skip) for fault in faults]

    def disarm(self) -> None:
        """Forget what is to come."""
        with self._lock:
            self._planned.clear()

    @property
    def is_done(self) -> bool:
        """Tell whether nothing is to come any more."""
        with self._lock:
            return not self._planned

    def next(self, exchange: Exchange) -> Fault | None:
        """Take the fault for an exchange: the first that is planned for its class, unless it is too early for it."""
        with self._lock:
            for at, (planned, skip) in enumerate(self._planned):
                if exchange not in planned.on:
                    continue
                if skip:
                    self._planned[at] = (planned, skip - 1)
                    return None
                del self._planned[at]
                self.delivered.append(planned)
                return planned.fault
        return None
