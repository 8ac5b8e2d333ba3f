"""Where a bug ends: an image, a driver, a pod, a rule object, a pass, a thread. Below a boundary nothing catches one.

A value that nobody foresaw, set by the author of one driver, by one registry or one node, must not stop the others. So
a few places do their work through :func:`contained`: it logs the traceback, counts it, and gives what stands in for the
result. Errors that we raise on purpose for somebody to handle pass through, where the place names them.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import Counter

from driver_builder.errors import InternalError
from kube_api.errors import KubeApiError
from kube_api.text import printable

INTERNAL_ERRORS = Counter(
    "driver_builder_internal_errors_total",
    "Unexpected errors, by the boundary that caught them: image, driver, pod, action, rules, pass, thread",
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
    """Do ``work`` and give its result, or that of ``otherwise`` when it ends with an error that nothing else handles.

    Errors of the kinds in ``passing`` are raised: what the API server answers is handled by whoever does passes.
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
