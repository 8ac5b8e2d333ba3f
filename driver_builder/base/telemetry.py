"""/healthz and /metrics of the controller, with the standard library's small server: no login, anybody can connect."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import Counter, Gauge, Histogram, Info, make_wsgi_app

from driver_builder.base.reasons import Reason

BUILD_SECONDS = Histogram(
    "driver_builder_build_seconds",
    "Duration of builds, by result: Succeeded, Failed, Cancelled, NotApplicable",
    ["result"],
    buckets=(5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800),
)
BUILDS = Counter(
    "driver_builder_builds_total",
    "Builds that ended, by result (Succeeded, Failed, Cancelled, NotApplicable) and, when it failed, the reason",
    ["result", "reason"],
)
TOOLCHAINS = Counter(
    "driver_builder_toolchains_total",
    "Toolchains of kernels, by result: Used by a build, Absent, Unusable, Pushed after a build, NotPushed",
    ["result"],
)
REGISTRY_CHECKS = Counter(
    "driver_builder_registry_checks_total",
    "Responses of registries to requests for an image: Present, Absent, Unauthorized, Unreachable, Invalid",
    ["state"],
)
REGISTRY_QUESTIONS = Gauge(
    "driver_builder_registry_questions",
    "Requests for images to registries: Waiting in the queue, or Asked and not answered yet",
    ["state"],
)
KERNEL_DISCOVERIES = Counter(
    "driver_builder_kernel_look_ups_total",
    "Kernel discoveries in package repositories, by result: Succeeded, Failed",
    ["result"],
)
NAMESPACES_FORBIDDEN = Gauge(
    "driver_builder_namespace_forbidden",
    "1 for a watched namespace that the controller may not read; its drivers stay unchanged",
    ["namespace"],
)
CACHE_LISTINGS = Counter(
    "driver_builder_cache_listings_total",
    "Full listings of resources that are otherwise followed by watches, by resource and cause: Start, Resync, Repair",
    ["resource", "cause"],
)
THREAD_RESTARTS = Counter("driver_builder_thread_restarts_total", "Restarts of threads, by thread", ["thread"])
JOB_LAST_RUN = Gauge(
    "driver_builder_job_last_run_timestamp_seconds",
    "When a job of the controller's table last ended, in seconds since 1970, by job",
    ["job_name"],
)
JOB_LAST_DURATION = Gauge("driver_builder_job_last_duration_seconds", "Duration of a job's last run", ["job_name"])
JOB_FAILURES = Counter("driver_builder_job_failures_total", "Runs of a job that failed", ["job_name"])
JOB_PAUSED = Gauge(
    "driver_builder_job_paused",
    "1 for a job that is not run here: its work is off, or this controller does not act",
    ["job_name"],
)
RECONCILE_SECONDS = Histogram(
    "driver_builder_reconcile_seconds",
    "Duration of a reconcile of all drivers, by result: Succeeded, or Failed if the API server failed",
    ["result"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
_BUILD_INFO = Info("driver_builder_build", "Version of driver-builder")
_BUILD_INFO.info({"version": version("driverwright")})

CONNECTION_SECONDS = 5.0
MAX_CONNECTIONS = 32

SILENCE_SECONDS = 600.0
"""A reconcile of a large fleet with slow registries takes minutes; one that takes longer than this hangs."""

logger = logging.getLogger(__name__)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


def count_build(*, seconds: float, reason: str, cancelled: bool) -> None:
    """Count a build that took ``seconds``; ``reason`` is why it failed, empty if it succeeded."""
    if cancelled:
        result, reason = "Cancelled", ""
    elif reason == Reason.NOT_APPLICABLE:
        result, reason = "NotApplicable", ""
    else:
        result = "Failed" if reason else "Succeeded"
    BUILDS.labels(result, reason).inc()
    BUILD_SECONDS.labels(result).observe(seconds)


class ToolchainUse(StrEnum):
    """What became of a toolchain: in a build, or after one."""

    USED = "Used"
    ABSENT = "Absent"
    UNUSABLE = "Unusable"
    PUSHED = "Pushed"
    NOT_PUSHED = "NotPushed"


def count_toolchain(use: ToolchainUse) -> None:
    """Count what became of a toolchain."""
    TOOLCHAINS.labels(use.value).inc()


class Heartbeat:
    """The reconcile loop's last heartbeat. Before the first it counts as alive: a controller may wait for its Lease."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def beat(self) -> None:
        """Record a heartbeat."""
        self._last = self._clock()

    def is_alive(self) -> bool:
        """Return whether the last heartbeat is recent enough."""
        return self._last is None or self._clock() - self._last <= SILENCE_SECONDS


class _QuietHandler(WSGIRequestHandler):
    timeout = CONNECTION_SECONDS
    """Seconds of each read and write."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes come every few seconds."""


class _PatientServer(ThreadingMixIn, WSGIServer):
    """Serves each connection in its own thread: a silent one does not block others.

    With ``MAX_CONNECTIONS`` open, the oldest is closed for a new one: a probe is answered at once.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * MAX_CONNECTIONS
    """The library's five are full while threads start; a client then retries after a second, then three."""

    def __init__(self, *arguments: Any, **words: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments, **words)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; the oldest is closed if there are too many."""
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = None
        if oldest is not None:
            with contextlib.suppress(OSError):
                # Its thread sees the end of the connection, and closes it.
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Remove a connection that ends."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the library calls it
        """Log a failed connection at debug level: peers come and go."""
        logger.debug("telemetry: connection of %s failed", client_address, exc_info=True)


def serve(port: int, *, healthy: Callable[[], bool]) -> WSGIServer:
    """Serve on ``port`` of all addresses until the process ends; ``healthy`` decides between 200 and 503."""
    metrics = make_wsgi_app()

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return list(metrics(environ, start_response))
        if environ["PATH_INFO"] != "/healthz":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"try /healthz or /metrics\n"]
        good = healthy()
        start_response("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if good else b"the reconcile loop hangs, or a thread has ended\n"]

    server = make_server("", port, application, server_class=_PatientServer, handler_class=_QuietHandler)
    threading.Thread(target=server.serve_forever, name="telemetry", daemon=True).start()
    logger.info("telemetry on port %d: /healthz /metrics", port)
    return server
