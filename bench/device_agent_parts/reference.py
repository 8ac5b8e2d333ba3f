"""A device plugin of one process with pynvml, grpcio and protobuf, as their documentation has it.

``python reference.py PATH LIBRARY FOLDER``: PATH are folders of modules, as JSON; LIBRARY is NVML's; FOLDER has the
kubelet's socket. It reads the GPUs every ten seconds, and waits for Xid errors in a thread.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SOCKET = "reference.sock"
SECONDS = 10


def serve(library: str, folder: str) -> None:
    """Serve, and register ``nvidia.com/gpu``."""
    import device_plugin_pb2 as api  # noqa: PLC0415 - the path to it is an argument
    import grpc  # noqa: PLC0415 - as above
    import pynvml  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    ctypes.CDLL(library)
    pynvml.nvmlInit()
    healthy: dict[str, bool] = {}

    def read() -> None:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            healthy.setdefault(pynvml.nvmlDeviceGetUUID(handle), True)

    def follow() -> None:
        events = pynvml.nvmlEventSetCreate()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, SECONDS * 1000)
            except pynvml.NVMLError_Timeout:
                continue
            healthy[pynvml.nvmlDeviceGetUUID(event.device)] = False

    def list_and_watch(_request: Any, context: Any) -> Iterator[Any]:
        sent: dict[str, bool] = {}
        while context.is_active():
            read()
            if healthy != sent:
                sent = dict(healthy)
                words = {True: "Healthy", False: "Unhealthy"}
                devices = [api.Device(ID=uuid, health=words[is_well]) for uuid, is_well in sent.items()]
                yield api.ListAndWatchResponse(devices=devices)
            time.sleep(SECONDS)

    def allocate(request: Any, _context: Any) -> Any:
        uuids = [",".join(one.devicesIDs) for one in request.container_requests]
        answers = [api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": uuid}) for uuid in uuids]
        return api.AllocateResponse(container_responses=answers)

    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: api.DevicePluginOptions(),
            api.Empty.FromString,
            api.DevicePluginOptions.SerializeToString,
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            list_and_watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(
            allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString
        ),
    }
    threading.Thread(target=follow, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(max_workers=10))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix://{folder}/{SOCKET}")
    server.start()
    with grpc.insecure_channel(f"unix://{folder}/kubelet.sock") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register", api.RegisterRequest.SerializeToString, api.Empty.FromString
        )
        register(api.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name="nvidia.com/gpu"))
    server.wait_for_termination()


if __name__ == "__main__":
    sys.path[:0] = json.loads(sys.argv[1])
    serve(*sys.argv[2:])
