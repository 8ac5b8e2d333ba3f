"""Follows lines of the container ``nvml``, and connects again when they end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from device_agent.errors import StateInvalid

Value = TypeVar("Value")


class Pauses(NamedTuple):
    """Seconds. ``silence``: until a container that says nothing counts as one that does not answer.

    ``first_delay``, ``longest_delay``: between connections.
    """

    silence: float = 35.0
    first_delay: float = 0.2
    longest_delay: float = 5.0


class Conversation(NamedTuple, Generic[Value]):
    """What is said over the socket.

    ``greeting``: the requests of each new connection. ``parse``: reads a line of at most ``longest`` bytes, or raises
    StateInvalid.
    ``take``: is called with what each line says; ``lose`` with the reason, each time when there are no lines any more.
    """

    greeting: Callable[[], bytes]
    parse: Callable[[bytes], Value]
    longest: int
    take: Callable[[Value], None]
    lose: Callable[[str], None]


class Lines(Generic[Value]):
    """Follows the container until it is closed. ``path``: of the socket."""

    def __init__(self, path: str, pauses: Pauses, conversation: Conversation[Value]) -> None:
        self._path = path
        self._pauses = pauses
        self._conversation = conversation
        self._has_taken = False
        self._writer: asyncio.StreamWriter | None = None
        self._task = asyncio.create_task(self._run())

    def send(self, request: bytes) -> bool:
        """Send a request by this connection; one that has to outlive it is in the greeting as well.

        False: there is no connection.
        """
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(request)
        return True

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """End the connection."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        delay = self._pauses.first_delay
        while True:
            self._has_taken = False
            self._conversation.lose(await self._follow())
            delay = self._pauses.first_delay if self._has_taken else delay
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._pauses.longest_delay)

    async def _follow(self) -> str:
        """Take lines until there are none any more; returns why."""
        try:
            async with asyncio.timeout(self._pauses.silence):
                limit = self._conversation.longest + 1
                reader, writer = await asyncio.open_unix_connection(self._path, limit=limit)
        except TimeoutError:
            return "the container nvml does not answer: it accepts no connection"
        except OSError as error:
            return f"the container nvml does not answer: {self._path}: {error.strerror or error}"
        try:
            return await self._read(reader, writer)
        finally:
            self._writer = None
            writer.transport.abort()  # what a container that is frozen has not read is of no use to the next one
            with suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        self._writer = writer
        writer.write(self._conversation.greeting())
        try:
            while True:
                async with asyncio.timeout(self._pauses.silence):
                    line = await reader.readline()
                if not line.endswith(b"\n"):
                    return "the container nvml does not answer: it has closed the connection"
                value = self._conversation.parse(line[:-1])
                self._has_taken = True
                self._conversation.take(value)
        except TimeoutError:
            return f"the container nvml does not answer: it said nothing for {self._pauses.silence:g} s"
        except OSError as error:
            return f"the container nvml does not answer: {error.strerror or error}"
        except ValueError:  # of a line that is longer than the limit
            return f"the container nvml said a line of more than {self._conversation.longest} bytes"
        except StateInvalid as error:
            return f"the container nvml said what is no state: {error}"
