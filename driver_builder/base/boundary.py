"""Where a bug ends: an image, a driver, a node, a pod, a rule, a reconcile, a thread. Only boundaries catch bugs.

An unforeseen value, set by the author of one driver, by one registry or one node, must not stop the others. So
a few places do their work through :func:`contained`: it logs the traceback, counts it, and returns a substitute for
the result. Errors that we raise on purpose pass through, if the place names them.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import Counter

from driver_builder.base.errors import InternalError
from kube_api.errors import KubeApiError
from kube_api.text import printable

INTERNAL_ERRORS = Counter(
    "driver_builder_internal_errors_total",
    "Unexpected errors, by the boundary that caught them:"
    " image, driver, node, pod, DaemonSet, ResourceSlice, action, rules, NodeFeature, pass, job, thread",
    ["boundary"],
)

_LONGEST = 300

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def contained(
    boundary: str,
    name: str,
    work: Callable[[], Result],
    otherwise: Callable[[InternalError], Result],
    *,
    passing: tuple[type[Exception], ...] = (KubeApiError,),
) -> Result:
    """Return the result of ``work``, or that of ``otherwise`` if it ends with an unexpected error.

    Errors of the kinds in ``passing`` are raised: the caller of a reconcile handles the API server's answers.
    """
    try:
        return work()
    except passing:
        raise
    except Exception as error:
        INTERNAL_ERRORS.labels(boundary).inc()
        logger.exception("internal error: %s %s", boundary, printable(name))
        return otherwise(InternalError(f"internal error: {type(error).__name__}: {_words(error)}"))


def _words(error: Exception) -> str:
    try:
        return printable(str(error), _LONGEST)
    except Exception as worse:  # noqa: BLE001 - the error's own words are part of what is contained
        return f"(no words: {type(worse).__name__})"
