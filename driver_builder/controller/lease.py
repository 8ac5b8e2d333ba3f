"""One controller acts at a time: the one that holds a ``coordination.k8s.io/v1`` Lease.

Our own few lines instead of ``kubernetes.leaderelection``, which can neither be stopped nor give the Lease back and
ends on the first transport error (``docs/decisions/0002-own-lease.md``).
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from kube_api.client import Client, Object
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import LEASES

DURATION_SECONDS = 15
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 2.0
"""Timeout of the client that a Lease is given: two requests and a pause must fit between deadline and duration."""
RENEW_DEADLINE_SECONDS = 8.0
"""After this long without renewal ours is given up: before ``DURATION_SECONDS``, when another controller takes it."""

logger = logging.getLogger(__name__)


class Lease:
    """Holds or waits for a Lease. ``identity`` should outlive a restart of the container (the pod's name)."""

    def __init__(
        self, client: Client, *, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._path = LEASES.path(namespace=namespace, name=name)
        self._collection = LEASES.path(namespace=namespace)
        self._name = name
        self._identity = identity
        self._clock = clock
        self._seen: tuple[object, float] = (None, 0.0)
        self._renewed: float | None = None
        self._held: Object | None = None
        """Ours, as the API server gave it back: a renewal is one PUT of it, and needs no GET."""

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until the Lease is ours; False when ``stop`` was set before."""
        said = False
        while not stop.is_set():
            try:
                if self.try_once():
                    return True
            except KubeApiError as error:
                logger.warning("lease: %s", error)
            if not said:
                logger.info("waiting for the lease %s", self._name)
                said = True
            stop.wait(RETRY_SECONDS)
        return False

    def hold(self, stop: threading.Event) -> None:
        """Renew until ``stop`` is set or the Lease is lost; returns in both cases."""
        # Of a thread that was started again, the last renewal counts.
        if self._renewed is None:
            self._renewed = self._clock()
        elif self._clock() - self._renewed > RENEW_DEADLINE_SECONDS:
            logger.error("lease %s: not renewed in time", self._name)
            return
        while not stop.wait(RETRY_SECONDS):
            # Counted from before the request: the server may have stored it long before it answered.
            began = self._clock()
            try:
                if not self.try_once():
                    logger.error("lease %s was taken by another controller", self._name)
                    return
                self._renewed = began
            except KubeApiError as error:
                logger.warning("lease: not renewed for %.0f s: %s", self._clock() - self._renewed, error)
                if self._clock() - self._renewed > RENEW_DEADLINE_SECONDS:
                    return

    def release(self) -> None:
        """Give the Lease back so that the next controller need not wait for it to run out."""
        try:
            lease = self._client.get(self._path)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._client.replace(self._path, lease)
        except KubeApiError as error:
            logger.warning("lease: not released: %s", error)

    def try_once(self) -> bool:
        """Take or renew the Lease if it is free, run out, or ours already."""
        if self._held is not None:
            held, self._held = self._held, None
            try:
                self._held = self._client.replace(self._path, self._renewal(held))
            except (Conflict, NotFound):
                # Somebody changed it, perhaps only an annotation of it.
                logger.debug("lease %s has changed", self._name)
            else:
                return True
        try:
            lease = self._client.get(self._path)
        except NotFound:
            return self._create()
        spec = lease.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._has_run_out(spec):
            return False
        try:
            self._held = self._client.replace(self._path, self._renewal(lease))
        except Conflict:
            return False
        return True

    def _renewal(self, lease: Object) -> Object:
        spec, now = dict(lease["spec"]), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now}
        return {**lease, "spec": spec}

    def _create(self) -> bool:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
        try:
            self._held = self._client.create(self._collection, body)
        except Conflict:
            return False
        return True

    def _has_run_out(self, spec: Object) -> bool:
        """Judge by our own clock since we saw the last renewal: the holder's clock may be wrong."""
        if spec.get("renewTime") != self._seen[0]:
            self._seen = (spec.get("renewTime"), self._clock())
        return self._clock() - self._seen[1] > float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
