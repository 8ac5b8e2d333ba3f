"""The request that a process of a pod be ended, and what became of it. What is read is checked, and bounded.

Whoever asks names all by which the process is known; the container ``nvml`` compares each of it before it acts
(:mod:`device_agent.nvml_container.ending`).
"""

from typing import Any, NamedTuple

from device_agent.gpu_state.checks import MOST, Check, integer, name, record, seconds, text

MOST_PID = 1 << 22
"""The kernel's own limit of ``pid_max``."""
LONGEST_DELAY = 10.0
"""Seconds after which a request is not acted on any more: the pod may be within its limit by then."""
MOST_ENDED = 64
"""Answers that are kept, the last ones."""


class EndRequest(NamedTuple):
    """End this process, if it still is the one that was seen.

    ``card``: the UUID of the card whose memory it has. ``uid``: its pod's UID, as
    :func:`device_agent.users.pods.plain_uid` writes it. ``pid``, ``start``: as of
    :class:`device_agent.gpu_state.use.ProcessUse`.
    ``at``: when it was asked, in seconds of CLOCK_BOOTTIME; no other request for this process has the same.
    """

    card: str
    uid: str
    pid: int
    start: int
    at: float


class Ended(NamedTuple):
    """What became of the request of that time for this process. ``why``: why it was not ended; empty: it was."""

    pid: int
    start: int
    at: float
    why: str = ""


_PROCESS: dict[str, Check[Any]] = {"pid": integer(least=1, most=MOST_PID), "start": integer(most=MOST), "at": seconds}
END_REQUEST: Check[EndRequest] = record(EndRequest, {"card": name, "uid": name, **_PROCESS})
ENDED: Check[Ended] = record(Ended, {**_PROCESS, "why": text})
