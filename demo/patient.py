"""A client that asks again when the API server says when, as both programs do.

A definition that is new answers ``429 storage is (re)initializing`` for a second, from Kubernetes 1.30 on. A busy
machine's server answers ``500 resource quota evaluation timed out``, and has written nothing; or it does not answer in
time: an apply is the same if it is repeated.
"""

import time
from contextlib import suppress
from typing import Any

from kube_api.client import Client, Object
from kube_api.connection import Response
from kube_api.errors import ServerUnavailable, TooManyRequests, Unreachable

ATTEMPTS = 10
LONGEST_PAUSE_SECONDS = 10.0
BUSY = "resource quota evaluation timed out"
BUSY_PAUSE_SECONDS = 1.0
APPLIES = 3
"""How often an apply is sent that gets no answer."""


class PatientClient(Client):
    """Waits as long as ``Retry-After`` asks, some times; an answer that names no time is an error as ever."""

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Apply; once more where no answer came."""
        for _ in range(APPLIES - 1):
            with suppress(Unreachable):
                return super().apply(path, body, field_manager=field_manager, force=force)
            time.sleep(BUSY_PAUSE_SECONDS)
        return super().apply(path, body, field_manager=field_manager, force=force)

    def _send(self, *request: Any, **options: Any) -> Response:
        for _ in range(ATTEMPTS - 1):
            try:
                return super()._send(*request, **options)
            except TooManyRequests as error:
                if error.retry_after is None:
                    raise
                time.sleep(min(error.retry_after, LONGEST_PAUSE_SECONDS))
            except ServerUnavailable as error:
                if BUSY not in str(error):
                    raise
                time.sleep(BUSY_PAUSE_SECONDS)
        return super()._send(*request, **options)
