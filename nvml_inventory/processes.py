"""Which processes use a GPU or a MIG device, with how much memory, and how busy each of them keeps it."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from nvml_inventory.binding import nvml
from nvml_inventory.measures import known, percent
from nvml_inventory.values import Process

_MOST_PROCESSES = 1024
_MOST_PID = 2**22
"""The kernel's PID_MAX_LIMIT."""
_TRIES = 3
"""A list that has grown between the question how long it is and the list itself is asked again."""


class Sample(NamedTuple):
    """How busy a process kept a GPU at some time, in microseconds. ``percent``: None where it makes no sense."""

    pid: int
    percent: float | None
    time: int


class Busy:
    """How busy each process kept each GPU since the last look at it; at the first one, as long as NVML remembers.

    ``clock``: that of the day, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._newest: dict[str, int] = {}
        self._looked = 0.0

    def read(self, uuid: str, handle: Any) -> dict[int, float | None] | None:
        """Read the means by PID, without processes that have no sample; None where they are not supported.

        ``uuid``: of the GPU or MIG device with this handle.
        """
        now = self._clock()
        if now < self._looked:
            # The driver's times are those of this clock, which was set back: new samples would count as old ones.
            self._newest.clear()
        self._looked = now
        samples = _read_samples(handle, self._newest.get(uuid, 0))
        if samples is None:
            return None
        self._newest[uuid] = max((sample.time for sample in samples), default=self._newest.get(uuid, 0))
        return mean_busy(samples)

    def keep(self, uuids: Iterable[str]) -> None:
        """Forget all other GPUs and MIG devices."""
        self._newest = {uuid: self._newest[uuid] for uuid in uuids if uuid in self._newest}


def read_processes(handle: Any) -> tuple[Process, ...] | None:
    """Read the processes of a GPU or a MIG device; None where NVML does not say them now."""
    compute = _read_list(
        nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2, handle
    )
    graphics = _read_list(
        nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, nvml.nvmlDeviceGetGraphicsRunningProcesses_v2, handle
    )
    return None if compute is None or graphics is None else merge_processes([*compute, *graphics])


def merge_processes(found: Iterable[tuple[int, int | None]]) -> tuple[Process, ...]:
    """Make one process of each PID, with the larger memory: one that does both is in both lists.

    Those with most memory come first, and are kept if there are too many.
    """
    memory_of: dict[int, int | None] = {}
    for pid, memory in found:
        if not 0 < pid <= _MOST_PID:
            continue
        before = memory_of.get(pid)
        memory_of[pid] = memory if before is None else max(before, memory or 0)
    processes = [Process(pid, memory) for pid, memory in memory_of.items()]
    processes.sort(key=lambda process: (-1 if process.memory is None else process.memory, -process.pid), reverse=True)
    return tuple(processes[:_MOST_PROCESSES])


def mean_busy(samples: Iterable[Sample]) -> dict[int, float | None]:
    """Take the mean by PID; None for a process whose samples all make no sense."""
    percents: dict[int, list[float]] = {}
    for sample in samples:
        of_this = percents.setdefault(sample.pid, [])
        if sample.percent is not None:
            of_this.append(sample.percent)
    return {pid: sum(of_this) / len(of_this) if of_this else None for pid, of_this in percents.items()}


def with_busy(processes: Iterable[Process], busy: Mapping[int, float | None] | None) -> tuple[Process, ...]:
    """Say how busy each process is: one without a sample is not."""
    if busy is None:
        return tuple(processes)
    return tuple(process._replace(busy=busy.get(process.pid, 0.0)) for process in processes)


def _read_list(
    newest: Callable[..., Any], older: Callable[..., Any], handle: Any
) -> list[tuple[int, int | None]] | None:
    """Return PIDs and memory; nothing where the driver has no such list, None where it could not be read now."""
    question = newest
    for _ in range(_TRIES):
        try:
            return [(one.pid, _memory(one.usedGpuMemory)) for one in question(handle)]
        except nvml.NVMLError_FunctionNotFound:
            if question is older:
                return []
            question = older  # before driver 510
        except nvml.NVMLError_InsufficientSize:
            continue
        except nvml.NVMLError_NotSupported:
            return []
        except nvml.NVMLError:
            return None
    return None


def _memory(size: int | None) -> int | None:
    return None if known(size) is None else size


def _read_samples(handle: Any, after: int) -> list[Sample] | None:
    try:
        found = nvml.nvmlDeviceGetProcessUtilization(handle, after)
    except nvml.NVMLError as error:
        # Without a new sample: NVML answers one of these, and pynvml makes an error of success.
        return [] if error.value in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND} else None
    return [
        Sample(one.pid, percent(one.smUtil), one.timeStamp)
        for one in found
        if known(one.timeStamp) is not None and one.timeStamp > after
    ]
