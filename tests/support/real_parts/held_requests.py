"""What stands between the agent and the container ``nvml`` of a test, and may keep requests to end a process back.

What happens between a decision and its execution happens while they are kept. Everything else passes.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from typing import Any

from device_agent.gpu_state.requests import END


class HeldRequests:
    """Listens on ``path``, and passes on to ``upstream``."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._lock = threading.Lock()
        self._is_held = False
        self._kept: list[tuple[socket.socket, bytes]] = []
        self._use = b""
        self._server = _server(path, self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep requests to end a process back, and pass them on at the end."""
        with self._lock:
            self._is_held = True
        try:
            yield
        finally:
            with self._lock:
                self._is_held = False
                for upstream, line in self._kept:
                    upstream.sendall(line)
                self._kept = []

    def kept(self) -> list[int]:
        """Return the PIDs of processes that are to be ended, as far as the requests are kept back."""
        with self._lock:
            return [json.loads(line)["process"]["pid"] for _, line in self._kept]

    def answer(self, pid: int) -> str | None:
        """Return why the process was not ended, as ``nvml`` said it last; empty if it was, None if it said nothing."""
        said: list[dict[str, Any]] = json.loads(self._use)["use"]["ended"] if self._use else []
        return next((one["why"] for one in reversed(said) if one["pid"] == pid), None)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def serve(self, agent: socket.socket) -> None:
        """Pass on what both say until one of them ends the connection."""
        with closing(socket.socket(socket.AF_UNIX)) as upstream, suppress(OSError):
            upstream.connect(self._upstream)
            threading.Thread(target=self._pass_answers, args=(upstream, agent), daemon=True).start()
            for line in agent.makefile("rb"):
                self._pass_request(upstream, line)
            upstream.shutdown(socket.SHUT_RDWR)

    def _pass_request(self, upstream: socket.socket, line: bytes) -> None:
        with self._lock:
            if self._is_held and json.loads(line)["request"] == END:
                self._kept.append((upstream, line))
            else:
                upstream.sendall(line)

    def _pass_answers(self, upstream: socket.socket, agent: socket.socket) -> None:
        with suppress(OSError):
            for line in upstream.makefile("rb"):
                if b'"ended":' in line:
                    self._use = line
                agent.sendall(line)
            agent.shutdown(socket.SHUT_RDWR)


def _server(path: Path, requests: HeldRequests) -> ThreadingUnixStreamServer:
    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            requests.serve(self.request)

    server = ThreadingUnixStreamServer(str(path), Handler)
    server.daemon_threads = True
    return server
