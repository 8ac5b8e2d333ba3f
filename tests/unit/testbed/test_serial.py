"""Commands to a guest through its serial port, which a thread plays."""

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
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
