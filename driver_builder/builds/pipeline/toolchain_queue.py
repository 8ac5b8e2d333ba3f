"""Pushes toolchains one at a time, beside builds and after them: no driver waits for one.

In memory only, on purpose: a toolchain that a killed controller did not push is pushed after the next build for its
kernel. One that the registry does not want, or that is not of its kernel, is not made again by this process.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor

from driver_builder.base import telemetry
from driver_builder.base.errors import DriverBuilderError, RegistryRejected, VerificationFailed
from driver_builder.base.telemetry import ToolchainUse
from driver_builder.builds.build_logs import Redactor
from driver_builder.builds.own_disk import own_disk
from driver_builder.model.build import LogSink
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image
from driver_builder.nodes.changes import StartBuild
from kube_api.errors import KubeApiError

Work = Callable[[StartBuild, LogSink, threading.Event], None]
"""Pushes the toolchain of an action unless it is there; given where log lines go, and the event that cancels it."""

MAX_REFUSED = 1000
"""Toolchains that are not tried again; beyond that all of them are, once more."""

logger = logging.getLogger(__name__)


class ToolchainQueue:
    """Pushes in the thread of ``pool``; ``secrets`` are those of an action that must not be logged."""

    def __init__(
        self,
        work: Work,
        *,
        secrets: Callable[[StartBuild], Iterable[str]] = lambda _action: (),
        pool: Executor | None = None,
    ) -> None:
        self._work = work
        self._secrets = secrets
        self._pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolchain")
        self._lock = threading.Lock()
        self._waiting: set[ImageRef] = set()
        self._refused: set[ImageRef] = set()
        self._stopped = threading.Event()

    def submit(self, action: StartBuild) -> None:
        """Push the toolchain of an image that was built, unless that is going on or has no chance."""
        reference = toolchain_image(action.request, action.image)
        with self._lock:
            if reference is None or self._stopped.is_set() or reference in self._waiting | self._refused:
                return
            self._waiting.add(reference)
            self._pool.submit(self._run, action, reference)

    def stop(self) -> None:
        """Cancel what is going on; does not wait for the layer that is being pushed, which no tag will name."""
        with self._lock:
            self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, action: StartBuild, reference: ImageRef) -> None:
        redact = Redactor()

        def log(line: str) -> None:
            logger.debug("toolchain %s: %s", reference, redact(line))

        try:
            redact.add(self._secrets(action))
            with own_disk():
                self._work(action, log, self._stopped)
        except (DriverBuilderError, KubeApiError) as error:
            if isinstance(error, RegistryRejected | VerificationFailed):
                self._refuse(reference)
            if not self._stopped.is_set():
                telemetry.count_toolchain(ToolchainUse.NOT_PUSHED)
                logger.warning("toolchain %s: not pushed: %s", reference, redact(str(error)))
        except Exception:
            # A bug must not end the thread, nor keep the toolchain in the queue forever.
            telemetry.count_toolchain(ToolchainUse.NOT_PUSHED)
            logger.exception("toolchain %s: internal error", reference)
        finally:
            with self._lock:
                self._waiting.discard(reference)

    def _refuse(self, reference: ImageRef) -> None:
        with self._lock:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            self._refused.add(reference)
