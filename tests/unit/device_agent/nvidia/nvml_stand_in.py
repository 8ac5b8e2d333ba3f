"""A container ``nvml`` that says what a test wants: the same socket and the same lines."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.requests import FOLLOW, FOLLOW_USE, LOOK, MAKE_NODES, Request, dump_error, parse_request
from device_agent.gpu_state.state import State
from device_agent.gpu_state.state_json import dump_state
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import dump_use
from tests.unit.device_agent.kubelet_stand_in import SECONDS


class Nvml:
    """Listens on a socket. ``line``: what it says to each that follows; None: nothing. ``asked``: what it was asked.

    ``use_line``: what it says to each that follows use. ``pods``: those whose use it was asked for, each time.
    ``ends``: processes that it was asked to end. ``change``: changes MIG instances, and returns what to say then.
    """

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "nvml.sock")
        self.line: bytes | None = None
        self.use_line: bytes | None = None
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.pods: asyncio.Queue[tuple[str, ...] | None] = asyncio.Queue()
        self.ends: asyncio.Queue[EndRequest] = asyncio.Queue()
        self.change: Callable[[MigChange], State] | None = None
        self._server: asyncio.Server | None = None
        self._following: set[asyncio.StreamWriter] = set()
        self._using: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, state: State | None = None) -> None:
        """Listen."""
        self.line = dump_state(state) if state is not None else self.line
        Path(self.path).unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """End, and with it all connections."""
        if self._server is not None:
            self._server.close()
            Path(self.path).unlink(missing_ok=True)
            for writer in self._following | self._using:
                writer.close()
            for task in set(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    def show(self, state: State) -> None:
        """Say a state from now on."""
        self.say(dump_state(state))

    def say(self, line: bytes) -> None:
        """Say a line from now on."""
        self.line = line
        for writer in self._following:
            writer.write(line + b"\n")

    def use(self, use: Use) -> None:
        """Say how cards are used from now on."""
        self.say_use(dump_use(use))

    def say_use(self, line: bytes) -> None:
        """Say a line to those who follow use from now on."""
        self.use_line = line
        for writer in self._using:
            writer.write(line + b"\n")

    async def next_request(self) -> str:
        """Wait for a request."""
        return await asyncio.wait_for(self.asked.get(), SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while line := await reader.readline():
                self._answer(parse_request(line[:-1]), writer)
        except ConnectionError:
            pass
        finally:
            self._following.discard(writer)
            self._using.discard(writer)
            self._tasks.discard(task)
            writer.close()

    def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.name == FOLLOW_USE:
            self.pods.put_nowait(request.pods)
            self._using.add(writer)
            if self.use_line is not None:
                writer.write(self.use_line + b"\n")
            return
        if request.change is not None:
            assert self.change is not None
            self.show(self.change(request.change))
            return
        if request.process is not None:
            self.ends.put_nowait(request.process)
            return
        assert request.name in (FOLLOW, MAKE_NODES, LOOK)
        self.asked.put_nowait(request.name)
        if request.name == FOLLOW:
            self._following.add(writer)
            if self.line is not None:
                writer.write(self.line + b"\n")


REFUSAL = dump_error("there are 8 clients already")
