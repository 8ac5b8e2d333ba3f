"""The loop of a thread that keeps something of the cluster in line, apart from the reconciler."""

import logging
import threading
from collections.abc import Callable

from driver_builder.base.retry import Backoff
from kube_api.errors import KubeApiError


def keep_in_line(
    what: str,
    sync: Callable[[], None],
    wait: Callable[[], None],
    *,
    stopping: threading.Event,
    logger: logging.Logger,
) -> None:
    """Do ``sync`` and ``wait`` for the next occasion until stopped, with back-off while the API server is away.

    ``what`` begins the log's lines about it.
    """
    backoff = Backoff(first=1.0, most=60.0)
    while not stopping.is_set():
        try:
            sync()
        except KubeApiError as error:
            delay = error.retry_after or backoff.next()
            logger.warning("%s: retrying in %.0f s: %s", what, delay, error)
            stopping.wait(delay)
        else:
            backoff.reset()
            wait()
