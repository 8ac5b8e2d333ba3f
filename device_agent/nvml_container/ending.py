"""Ends a process of a pod: compares all by which it is known once more, and acts on that very process.

Between the decision and the kill the process may end, and the kernel may give its PID to another one. So a descriptor
of the process (a pidfd) is opened first: the signal reaches what it was opened for, or nothing.
"""

import os
import signal
from collections.abc import Callable, Collection

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import LONGEST_DELAY, EndRequest
from device_agent.nvml_container.processes import read_parent, read_process

_MOST_ANCESTORS = 64

SendSignal = Callable[[int, int], None]
ProcessesOfCard = Callable[[str], Collection[int] | None]


def end_process(
    request: EndRequest,
    processes_of_card: ProcessesOfCard,
    proc: str,
    send_signal: SendSignal = signal.pidfd_send_signal,
) -> str:
    """End a process by SIGKILL, if it still is what the request says; returns why not, and an empty text if it did.

    Args:
        request: which one it is.
        processes_of_card: asks NVML for the PIDs that use a card; None where it does not say.
        proc: the node's ``/proc``.
        send_signal: as :func:`signal.pidfd_send_signal`.
    """
    if why := _never(request.pid, proc) or _is_late(request):
        return why
    try:
        process = os.pidfd_open(request.pid)
    except OSError as error:
        return _has_ended(request) if isinstance(error, ProcessLookupError) else _cannot("opened", request, error)
    try:
        # What is read of the PID from here on is that of the process in hand, or that process has ended.
        if why := _differs(request, proc) or _is_elsewhere(request, processes_of_card):
            return why
        send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        return _has_ended(request)
    except OSError as error:
        return _cannot("ended", request, error)
    finally:
        os.close(process)
    return ""


def _never(pid: int, proc: str) -> str:
    """Say why a process is never ended, whoever asks: it is the node's first one, or one that has started this one."""
    if pid <= 1:
        return f"process {pid} is the first one of the node, or none"
    ours: int | None = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        if ours is None:
            break
        if ours <= 1:
            return ""
        if ours == pid:
            return f"process {pid} is the container nvml itself, or has started it"
        ours = read_parent(proc, ours)
    return f"it cannot be said whether process {pid} has started the container nvml"


def _is_late(request: EndRequest) -> str:
    """Say that a request waited for too long, as behind an NVML that hung: who asks has to decide again."""
    age = seconds_since_boot() - request.at
    return "" if 0 <= age <= LONGEST_DELAY else f"the request is {age:.0f} s old"


def _differs(request: EndRequest, proc: str) -> str:
    """Say in what the process with this PID is not the one that is meant."""
    now = read_process(proc, request.pid)
    if now is None:
        return _has_ended(request)
    if now.start != request.start:
        return f"process {request.pid} is another one now: it started at {now.start} and not at {request.start}"
    if now.uid != request.uid:
        return f"process {request.pid} is in {'another' if now.uid else 'no'} pod"
    ours = read_process(proc, os.getpid())
    return f"process {request.pid} is in the pod of the agent" if ours is None or ours.uid == now.uid else ""


def _is_elsewhere(request: EndRequest, processes_of_card: ProcessesOfCard) -> str:
    """Say why it is not known that the process uses the card."""
    listed = processes_of_card(request.card)
    if listed is None:
        return f"NVML does not say which processes use {request.card}"
    return "" if request.pid in listed else f"process {request.pid} does not use {request.card} any more"


def _has_ended(request: EndRequest) -> str:
    return f"process {request.pid} has ended"


def _cannot(what: str, request: EndRequest, error: OSError) -> str:
    return f"process {request.pid} cannot be {what}: {error.strerror or error}"
