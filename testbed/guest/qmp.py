"""Speak to a running QEMU: hotplug devices, end it, ask it for its state (QEMU Machine Protocol)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError

_TIMEOUT = 240.0


def execute(path: Path, command: str, **arguments: Any) -> Any:
    """Run one command on the QEMU whose control socket is `path`; return what it answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(str(path))
        with connection.makefile("rw") as file:
            file.readline()  # the greeting
            _ask(file, "qmp_capabilities", {})
            return _ask(file, command, arguments)


def _ask(file: Any, command: str, arguments: dict[str, Any]) -> Any:
    file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
    file.flush()
    while line := file.readline():
        message = json.loads(line)
        if "return" in message:
            return message["return"]
        if "error" in message:
            raise TestbedError(f"QEMU refused {command}: {message['error'].get('desc')}")
    # `quit` may close the connection before the answer is read.
    return None
