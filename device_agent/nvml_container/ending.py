"""Ends a process of a pod: compares all by which it is known once more, and acts on that very process.

Between the decision and the kill the process may end, and the kernel may give its PID to another one. So a descriptor
of the process (a pidfd) is opened first: the signal reaches what it was opened for, or nothing.
"""

import os
import signal
from collections.abc import Callable, Collection
from typing import NamedTuple

from device_agent.gpu_state.ending import EndRequest
from device_agent.users.pods import plain_uid, pod_uids

_LONGEST = 1 << 16
"""Bytes of a file of a process. A line of ``cgroup`` has at most a path of 4 KiB; cgroup v1 has about 14 lines."""
_MOST_ANCESTORS = 64

SendSignal = Callable[[int, int], None]
ProcessesOfCard = Callable[[str], Collection[int] | None]


class _Stat(NamedTuple):
    """Of ``/proc/PID/stat``: the parent's PID, and when the process started, in clock ticks since the boot."""

    parent: int
    start: int


def end_process(
    request: EndRequest,
    processes_of_card: ProcessesOfCard,
    proc_root: str,
    send_signal: SendSignal = signal.pidfd_send_signal,
) -> str:
    """End a process by SIGKILL, if it still is what the request says; returns why not, and an empty text if it did.

    Args:
        request: which one it is.
        processes_of_card: asks NVML for the PIDs that use a card; None where it does not say.
        proc_root: the folder of the node's ``/proc``.
        send_signal: as :func:`signal.pidfd_send_signal`.
    """
    proc = f"{proc_root.rstrip('/')}/proc"
    if why := _never(request.pid, proc):
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
    """Say why a process is never ended, whoever asks: it is the node's first one, or one that this one hangs on."""
    if pid <= 1:
        return f"process {pid} is the first one of the node, or none"
    ours = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        if pid == ours:
            return f"process {pid} is the container nvml itself, or has started it"
        stat = _read_stat(proc, ours)
        if stat is None:
            break
        if stat.parent <= 1:
            return ""
        ours = stat.parent
    return f"it cannot be said whether process {pid} has started the container nvml"


def _differs(request: EndRequest, proc: str) -> str:
    """Say in what the process with this PID is not the one that is meant."""
    stat = _read_stat(proc, request.pid)
    if stat is None:
        return _has_ended(request)
    if stat.start != request.start:
        return f"process {request.pid} is another one now: it started at {stat.start} and not at {request.start}"
    pod = _read_pod(proc, request.pid)
    if not pod:
        return f"process {request.pid} is in no pod"
    if pod != request.uid:
        return f"process {request.pid} is in another pod"
    return f"process {request.pid} is in the pod of the agent" if pod == _read_pod(proc, os.getpid()) else ""


def _is_elsewhere(request: EndRequest, processes_of_card: ProcessesOfCard) -> str:
    """Say why it is not known that the process uses the card."""
    listed = processes_of_card(request.card)
    if listed is None:
        return f"NVML does not say which processes use {request.card}"
    return "" if request.pid in listed else f"process {request.pid} does not use {request.card} any more"


def _read_stat(proc: str, pid: int) -> _Stat | None:
    """Read what is needed of a process; None if there is none. Its name, in parentheses, may hold any characters."""
    fields = _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20 or not (fields[1].isdigit() and fields[19].isdigit()):
        return None
    return _Stat(parent=int(fields[1]), start=int(fields[19]))


def _read_pod(proc: str, pid: int) -> str:
    """Return the UID of the pod of a process; empty if it is in none, or in two."""
    lines = os.fsdecode(_read(f"{proc}/{pid}/cgroup")).splitlines()
    pods = {pod for line in lines if (pod := _outermost(line.split(":", 2)[-1]))}
    return pods.pop() if len(pods) == 1 else ""


def _outermost(path: str) -> str:
    """Return the UID of the outermost folder that is a pod's: those below it are made by what runs in the pod."""
    for name in path.split("/"):
        for uid in pod_uids([name]):
            return plain_uid(uid)
    return ""


def _read(path: str) -> bytes:
    """Read a file of a process; empty if that has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = b""
        while len(content) < _LONGEST and (chunk := os.read(descriptor, _LONGEST)):
            content += chunk
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return content


def _has_ended(request: EndRequest) -> str:
    return f"process {request.pid} has ended"


def _cannot(what: str, request: EndRequest, error: OSError) -> str:
    return f"process {request.pid} cannot be {what}: {error.strerror or error}"
