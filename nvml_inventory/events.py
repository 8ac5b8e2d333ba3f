"""Waiting for Xid errors."""

import ctypes
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.values import Xid

_NO_INSTANCE = 0xFFFFFFFF
_MOST_LEFT = 256
"""How many events are taken along from one event set to the next."""


class Watch:
    """The event set of a session, with the GPUs that are registered in it.

    It is made anew whenever other GPUs can be read than before: the driver forgets the registration of a GPU that was
    lost, and for as long as a set has a lost GPU, each wait for it fails at once, whatever happens to the other GPUs.
    """

    def __init__(self) -> None:
        self._set: Any = None
        self._handles: Mapping[str, Any] = {}
        self._uuids: dict[int, str] = {}
        self._settled: frozenset[str] = frozenset()
        self._left: deque[Xid] = deque()

    @property
    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs whose errors are reported."""
        return frozenset(self._uuids.values())

    def follow(self, handles: Mapping[str, Any]) -> None:
        """Watch these GPUs, by UUID, as far as they and the driver support it."""
        self._handles = handles
        if self._settled != handles.keys():
            self._renew()

    def wait(self, seconds: float) -> Xid | None:
        """Wait for the next error at most this long; None without one. Never returns None early."""
        if self._left:
            return self._left.popleft()
        deadline = time.monotonic() + seconds
        for _ in range(2):
            if not self._uuids:
                break
            try:
                return self._take(deadline - time.monotonic())
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError:
                # Such as that a GPU is lost. Once more without it; if that fails too, the next call tries again.
                self._renew()
                if self._left:
                    return self._left.popleft()
        time.sleep(max(0.0, deadline - time.monotonic()))
        return None

    def close(self) -> None:
        """Free the event set."""
        self._free(self._set)
        self._set, self._uuids, self._settled = None, {}, frozenset()

    def _take(self, seconds: float) -> Xid:
        data = nvml.nvmlEventSetWait_v2(self._set, max(0, int(seconds * 1000)))
        return self._xid(data, self._uuids)

    def _xid(self, data: Any, uuids: Mapping[int, str]) -> Xid:
        return Xid(
            uuid=uuids.get(_address(data.device)) or _uuid(data.device),
            xid=data.eventData,
            gi=_instance(data.gpuInstanceId),
            ci=_instance(data.computeInstanceId),
        )

    def _renew(self) -> None:
        """Make a new set, and take along what has arrived in the old one meanwhile: an error may arrive twice."""
        old_set, old_uuids = self._set, self._uuids
        self._set, self._uuids = None, {}
        settled = set()
        for uuid, handle in self._handles.items():
            if self._register(uuid, handle):
                settled.add(uuid)
        self._settled = frozenset(settled)
        with suppress(nvml.NVMLError):
            while old_set is not None and len(self._left) < _MOST_LEFT:
                self._left.append(self._xid(nvml.nvmlEventSetWait_v2(old_set, 0), old_uuids))
        self._free(old_set)

    def _register(self, uuid: str, handle: Any) -> bool:
        """Register a GPU; returns whether that is settled: also when it cannot be watched at all."""
        try:
            if self._set is None:
                self._set = nvml.nvmlEventSetCreate()
            wanted = nvml.nvmlEventTypeXidCriticalError
            if nvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                nvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
                self._uuids[_address(handle)] = uuid
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return True
        except nvml.NVMLError:
            return False
        return True

    def _free(self, event_set: Any) -> None:
        if event_set is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(event_set)


def _address(handle: Any) -> int:
    """Identify a GPU by its handle: a lost one no longer says its UUID."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _uuid(handle: Any) -> str:
    try:
        return str(nvml.nvmlDeviceGetUUID(handle))
    except (nvml.NVMLError, ValueError):
        return ""


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
