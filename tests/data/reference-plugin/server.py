"""A device plugin by grpcio and protobuf, as their documentation has it: what device-agent is measured beside.

It offers one device node to the kubelet, and looks for it every five seconds, as squat/generic-device-plugin does.
"""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import device_plugin_pb2 as api
import grpc

FOLDER = "/var/lib/kubelet/device-plugins"
SOCKET = "reference.sock"
HOST = "/host"
SECONDS = 5


class DevicePlugin:
    """The methods that the kubelet calls."""

    def __init__(self, path: str, host: str) -> None:
        self._path = path
        self._host = host

    def options(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """Say that nothing beyond the required methods is there."""
        return api.DevicePluginOptions()

    def list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Send the device, and again when its health is another one."""
        known = False
        health = ""
        while context.is_active():
            is_there = os.path.exists(self._host + self._path)  # noqa: PTH110
            known = known or is_there
            now = "Healthy" if is_there else "Unhealthy"
            if now != health:
                health = now
                devices = [api.Device(ID="device", health=now)] if known else []
                yield api.ListAndWatchResponse(devices=devices)
            time.sleep(SECONDS)

    def allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Give each container the device."""
        spec = api.DeviceSpec(container_path=self._path, host_path=self._path, permissions="rw")
        answers = [api.ContainerAllocateResponse(devices=[spec]) for _ in request.container_requests]
        return api.AllocateResponse(container_responses=answers)


def main(resource: str, path: str, folder: str = FOLDER, socket: str = SOCKET, host: str = HOST) -> None:
    """Serve, and register the resource.

    ``path``: of the device node, on a node whose ``/dev`` is below ``host``. ``folder``: the kubelet's, of sockets.
    """
    plugin = DevicePlugin(path, host)
    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
            plugin.options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            plugin.list_and_watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(
            plugin.allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(max_workers=10))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix://{folder}/{socket}")
    server.start()
    with grpc.insecure_channel(f"unix://{folder}/kubelet.sock") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register", api.RegisterRequest.SerializeToString, api.Empty.FromString
        )
        register(api.RegisterRequest(version="v1beta1", endpoint=socket, resource_name=resource))
    print("registered", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
