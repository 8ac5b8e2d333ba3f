"""Events of decisions, and of cards whose driver keeps no limits, written with the agent's token, if it has one."""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime

from device_agent.event import Json
from device_agent.memory_limits.by_driver import Refusal, refusal_event
from device_agent.memory_limits.report import event
from device_agent.memory_limits.watch import Ending
from device_agent.sources.in_thread import in_thread
from kube_api.errors import KubeApiError
from kube_api.resources import EVENTS
from kube_api.text import printable

log = logging.getLogger(__name__)

Create = Callable[[str, Json], object]
"""Creates an object at a path of the API server; raises KubeApiError."""

_SECONDS = 3.0
"""What an API server that does not answer holds a decision up."""


class Teller:
    """Writes Events. ``create``: None where there is no token: then the log alone has them. ``node``: the Node."""

    def __init__(self, create: Create | None, node: str) -> None:
        self._create = create
        self._node = node
        self._said = ""

    async def __call__(self, told: Ending | Refusal) -> None:
        """Write the Event; that it could not be written is logged, once for each reason."""
        create = self._create
        if create is None:
            return
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        suffix = os.urandom(8).hex()
        if isinstance(told, Refusal):
            body = refusal_event(told, self._node, at=at, suffix=suffix)
        else:
            body = event(told, self._node, at=at, suffix=suffix)
        path = EVENTS.path(namespace=body["metadata"]["namespace"])
        why = ""
        try:
            async with asyncio.timeout(_SECONDS):
                await in_thread(lambda: create(path, body), "event")
        except TimeoutError:
            why = f"the API server did not answer in {_SECONDS:g} s"
        except KubeApiError as error:
            why = str(error)
        except (OSError, RuntimeError) as error:  # no thread can be started
            why = printable(f"{error!r}")
        if why and why != self._said:
            log.warning("memory: an Event cannot be written: %s", why)
        self._said = why
