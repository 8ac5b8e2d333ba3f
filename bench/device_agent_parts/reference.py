"""A device plugin of one process with pynvml, grpcio and protobuf, as their documentation has it.

``python reference.py PATH LIBRARY FOLDER``: PATH are folders of modules, as JSON; LIBRARY is NVML's; FOLDER has the
kubelet's socket. It reads the GPUs every ten seconds, and waits for Xid errors in a thread. It is served by
``tests/data/reference-plugin``.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

SECONDS = 10


class NvidiaPlugin:
    """The methods that the kubelet calls. ``api``: the messages; ``nvml``: pynvml, initialised."""

    def __init__(self, api: Any, nvml: Any) -> None:
        self._api = api
        self._nvml = nvml
        self._healthy: dict[str, bool] = {}

    def options(self, _request: Any, _context: Any) -> Any:
        """Say that nothing beyond the required methods is there."""
        return self._api.DevicePluginOptions()

    def list_and_watch(self, _request: Any, context: Any) -> Iterator[Any]:
        """Send the GPUs, and again when the health of one is another."""
        sent: dict[str, bool] = {}
        while context.is_active():
            self._read()
            if self._healthy != sent:
                sent = dict(self._healthy)
                words = {True: "Healthy", False: "Unhealthy"}
                devices = [self._api.Device(ID=uuid, health=words[is_well]) for uuid, is_well in sent.items()]
                yield self._api.ListAndWatchResponse(devices=devices)
            time.sleep(SECONDS)

    def allocate(self, request: Any, _context: Any) -> Any:
        """Give each container its GPUs by their UUIDs."""
        uuids = [",".join(one.devicesIDs) for one in request.container_requests]
        answers = [self._api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": uuid}) for uuid in uuids]
        return self._api.AllocateResponse(container_responses=answers)

    def follow(self) -> None:
        """Wait for Xid errors, without end."""
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        for handle in self._handles():
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        while True:
            try:
                event = nvml.nvmlEventSetWait_v2(events, SECONDS * 1000)
            except nvml.NVMLError_Timeout:
                continue
            self._healthy[nvml.nvmlDeviceGetUUID(event.device)] = False

    def _read(self) -> None:
        for handle in self._handles():
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
            self._healthy.setdefault(self._nvml.nvmlDeviceGetUUID(handle), True)

    def _handles(self) -> Iterator[Any]:
        return map(self._nvml.nvmlDeviceGetHandleByIndex, range(self._nvml.nvmlDeviceGetCount()))


def main(library: str, folder: str) -> None:
    """Serve, and register ``nvidia.com/gpu``."""
    ctypes.CDLL(library)
    nvml = import_module("pynvml")
    nvml.nvmlInit()
    plugin = NvidiaPlugin(import_module("device_plugin_pb2"), nvml)
    threading.Thread(target=plugin.follow, daemon=True).start()
    import_module("server").serve(plugin, "nvidia.com/gpu", folder)


if __name__ == "__main__":
    sys.path[:0] = json.loads(sys.argv[1])
    main(*sys.argv[2:])
