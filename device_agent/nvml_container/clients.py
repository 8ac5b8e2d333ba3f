"""The clients of the socket: few, each with bounded buffers and deadlines. None keeps the supervisor waiting."""

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import (
    FOLLOW,
    FOLLOW_USE,
    LEAVE_USE,
    LONGEST_REQUEST,
    Request,
    dump_error,
    parse_request,
)

MOST_CLIENTS = 8
_CHUNK = 1 << 16


class Clients:
    """Accepts clients, reads what they ask, and sends state and use of cards to those that follow them.

    ``asked``: is called with each request that is about neither. ``idle``: seconds in which a client has to ask or to
    read something.
    """

    def __init__(
        self,
        listening: socket.socket,
        selector: selectors.BaseSelector,
        asked: Callable[[Request], None],
        idle: float,
    ) -> None:
        self._selector = selector
        self._listening = listening
        self._asked = asked
        self._idle = idle
        self._clients: dict[int, _Client] = {}
        self._using: dict[_Client, Request] = {}
        self._line = b""
        selector.register(listening, selectors.EVENT_READ, self._accept)

    def send(self, line: bytes, now: float) -> None:
        """Send a state, without its newline, to each client that follows, and at once to each one that will."""
        self._line = line + b"\n"
        for client in [client for client in self._clients.values() if FOLLOW in client.follows]:
            self._put(client, FOLLOW, self._line, now)

    def send_use(self, line: bytes, now: float) -> None:
        """Send the use of cards, without its newline, to each client that follows it."""
        line += b"\n"
        for client in list(self._using):
            self._put(client, FOLLOW_USE, line, now)

    @property
    def use(self) -> Request:
        """Return the newest request to follow the use of cards, of clients that still do; that to leave it without."""
        return next(reversed(self._using.values()), Request(LEAVE_USE))

    def next_deadline(self) -> float:
        """Return when the first client has been idle for too long."""
        due = (client.since for client in self._clients.values() if client.is_due)
        return min(due, default=float("inf")) + self._idle

    def drop_idle(self, now: float) -> None:
        """Drop clients that were idle for too long: those that ask nothing, and those that do not read."""
        for client in list(self._clients.values()):
            if client.is_due and now >= client.since + self._idle:
                self._drop(client)

    def close(self) -> None:
        """Drop all clients, and listen no more."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.unregister(self._listening)

    def _accept(self, _events: int, now: float) -> None:
        with suppress(OSError):  # it has gone again, or there are no descriptors: it is asked for again
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            if len(self._clients) >= MOST_CLIENTS:
                _refuse(connection, f"there are {MOST_CLIENTS} clients already")
                return
            client = _Client(connection, now)
            self._clients[connection.fileno()] = client
            self._selector.register(connection, selectors.EVENT_READ, self._handler(client))

    def _handler(self, client: "_Client") -> Callable[[int, float], None]:
        return lambda events, now: self._ready(client, events, now)

    def _ready(self, client: "_Client", events: int, now: float) -> None:
        if events & selectors.EVENT_READ:
            self._read(client, now)
        if events & selectors.EVENT_WRITE and client.is_open:
            self._write(client, now)

    def _read(self, client: "_Client", now: float) -> None:
        try:
            lines = client.read()
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        try:
            for line in lines:
                if client.is_open:
                    self._answer(client, parse_request(line), now)
        except StateInvalid as error:
            client.refuse(str(error))
            self._drop(client)
            return
        if client.has_ended:
            self._drop(client)

    def _answer(self, client: "_Client", request: Request, now: float) -> None:
        client.touch(now)
        if request.name == FOLLOW:
            self._follow(client, now)
        elif request.name in {FOLLOW_USE, LEAVE_USE}:
            self._follow_use(client, request)
        else:
            self._asked(request)

    def _follow(self, client: "_Client", now: float) -> None:
        if FOLLOW not in client.follows:
            client.follows.add(FOLLOW)
            if self._line:
                self._put(client, FOLLOW, self._line, now)

    def _follow_use(self, client: "_Client", request: Request) -> None:
        self._using.pop(client, None)
        client.follows.discard(FOLLOW_USE)
        if request.name == FOLLOW_USE:
            self._using[client] = request  # as the newest one
            client.follows.add(FOLLOW_USE)

    def _put(self, client: "_Client", kind: str, line: bytes, now: float) -> None:
        client.put(kind, line, now)
        self._write(client, now)

    def _write(self, client: "_Client", now: float) -> None:
        try:
            client.write(now)
        except OSError:
            self._drop(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.is_sending else 0)
        self._selector.modify(client.connection, wanted, self._handler(client))

    def _drop(self, client: "_Client") -> None:
        if client.is_open:
            self._selector.unregister(client.connection)
            del self._clients[client.connection.fileno()]
            self._using.pop(client, None)
            client.connection.close()


class _Client:
    """One connection. Of lines that it does not read, the newest one of each kind waits besides what is under way.

    ``follows``: what is sent to it: FOLLOW, FOLLOW_USE. ``since``: when it last asked, or read, something.
    """

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.connection = connection
        self.follows: set[str] = set()
        self.has_ended = False
        self.since = now
        self._received = bytearray()
        self._under_way = memoryview(b"")
        self._next: dict[str, bytes] = {}

    @property
    def is_open(self) -> bool:
        return self.connection.fileno() >= 0

    @property
    def is_sending(self) -> bool:
        return bool(self._under_way)

    @property
    def is_due(self) -> bool:
        """Return whether the client has to do something: read, or ask for the first time or again."""
        return self.is_sending or not self.follows

    def touch(self, now: float) -> None:
        """Note that it has done something."""
        self.since = now

    def read(self) -> list[bytes]:
        """Read the lines that are there.

        Raises:
            OSError: it is gone, or has sent nothing.
        """
        chunk = self.connection.recv(_CHUNK)
        self.has_ended = not chunk
        self._received += chunk
        if b"\n" not in chunk and len(self._received) <= LONGEST_REQUEST:
            return []
        *lines, self._received = self._received.split(b"\n")
        # Of a line that is too long, enough is kept to refuse it.
        return [bytes(line) for line in (*lines, *([self._received] if len(self._received) > LONGEST_REQUEST else ()))]

    def put(self, kind: str, line: bytes, now: float) -> None:
        """Have a line sent, in place of one of its kind that is not under way yet."""
        if self.is_sending:
            self._next[kind] = line
        else:
            self._under_way = memoryview(line)
            self.touch(now)

    def write(self, now: float) -> None:
        """Send what the connection takes.

        Raises:
            OSError: it is gone.
        """
        with suppress(BlockingIOError):
            while self._under_way:
                self._under_way = self._under_way[self.connection.send(self._under_way) :]
                self.touch(now)
                if not self._under_way and self._next:
                    self._under_way = memoryview(self._next.pop(next(iter(self._next))))

    def refuse(self, message: str) -> None:
        """Answer with an error, if there is room for it."""
        if not self.is_sending:
            _try_to_send(self.connection, message)


def _refuse(connection: socket.socket, message: str) -> None:
    with connection:
        _try_to_send(connection, message)


def _try_to_send(connection: socket.socket, message: str) -> None:
    with suppress(OSError):
        connection.send(dump_error(message))
