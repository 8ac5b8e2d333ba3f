"""Commands to a guest through its serial port, which a thread plays."""

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from testbed.guest import serial

KNOCK = base64.b64encode(b":").decode()


def answer(identity: str, output: bytes) -> bytes:
    """Return what a guest sends for a command that succeeded."""
    return b"[%s 0\n%s%s]\n" % (identity.encode(), base64.encodebytes(output), identity.encode())


def play_busy_guest(listener: socket.socket) -> None:
    """Answer each knock when the next one is there: later than who knocks waits before it knocks again."""
    port, _ = listener.accept()
    knocks: list[str] = []
    with port, port.makefile("r") as lines:
        for line in filter(str.strip, lines):
            identity, _, command = line.split()
            if command != KNOCK:
                port.sendall(answer(identity, base64.b64decode(command)))
                continue
            knocks.append(identity)
            if len(knocks) > 1:
                port.sendall(answer(knocks[-2], b""))


@pytest.fixture
def busy_guest(tmp_path: Path) -> Iterator[Path]:
    """Return the port of a guest that takes its time."""
    path = tmp_path / "port"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()
        guest = threading.Thread(target=play_busy_guest, args=(listener,))
        guest.start()
        yield path
        guest.join()


def test_a_guest_that_answers_late_is_heard(busy_guest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it takes for a command: the answer to an earlier knock says that it listens."""
    monkeypatch.setattr(serial, "_KNOCK_SECONDS", 0.05)
    monkeypatch.setattr(serial, "_LONGEST_PAUSE_SECONDS", 0.05)
    assert serial.run_command(busy_guest, "echo", timeout=60, is_running=lambda: True) == (0, "echo")


def play_late_guest(listener: socket.socket, is_full: threading.Event) -> None:
    """Read nothing until the port takes no more knocks; then answer all."""
    port, _ = listener.accept()
    is_full.wait()
    with port, port.makefile("r") as lines:
        for line in filter(str.strip, lines):
            identity, _, command = line.split()
            with suppress(BrokenPipeError):
                port.sendall(answer(identity, b"" if command == KNOCK else base64.b64decode(command)))


def test_a_port_that_takes_no_more_knocks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that boots for minutes reads none of them, and the port has room for some seventy."""
    path, is_full, rounds = tmp_path / "port", threading.Event(), iter(range(1000))
    monkeypatch.setattr(serial, "_KNOCK_SECONDS", 0.001)
    monkeypatch.setattr(serial, "_LONGEST_PAUSE_SECONDS", 0.001)
    encode = serial.encode_command

    def counted(identity: str, command: str, seconds: int) -> bytes:
        if next(rounds) == 500:
            is_full.set()
        return encode(identity, command, seconds)

    monkeypatch.setattr(serial, "encode_command", counted)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()
        guest = threading.Thread(target=play_late_guest, args=(listener, is_full))
        guest.start()
        try:
            assert serial.run_command(path, "echo", timeout=60, is_running=lambda: True) == (0, "echo")
        finally:
            is_full.set()
            guest.join()
