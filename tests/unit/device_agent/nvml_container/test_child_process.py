"""A child, as its supervisor has it."""

import os
import signal
import time

import pytest

from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.requests import (
    CHANGE_MIG,
    FOLLOW_USE,
    LEAVE_USE,
    LOOK,
    MAKE_NODES,
    Request,
    dump_request,
    parse_request,
)
from device_agent.gpu_state.use import MOST_PODS
from device_agent.nvml_container.child_process import Child, Wanted, start_child
from tests.unit.device_agent.nvml_container.running import is_gone, wait_for


def lines_of(child: Child) -> list[bytes]:
    """Wait for lines, and read what is there."""
    found: list[bytes] = []

    def has_lines() -> bool:
        found.extend(child.read(0.0) or ())
        return bool(found)

    wait_for(has_lines, "a line")
    return found


def test_a_child_is_heard_before_it_is_reaped() -> None:
    """It ends as soon as it has said something, which may be before anybody looks."""

    def work(_requests: int, lines: int, _wanted: Wanted) -> int:
        os.write(lines, b"one\ntwo\n")
        return 7

    child = start_child(work, Wanted(), now=0.0)
    wait_for(lambda: is_gone(child.pid), "its end")
    assert child.reap() is None
    assert child.read(1.0) == [b"one", b"two"]
    assert child.reap() is None
    assert child.read(2.0) is None
    assert (child.reap(), child.heard) == (7, 1.0)


def test_a_child_that_was_killed_is_reaped_whatever_it_has_said() -> None:
    """What is left of its lines is not wanted."""

    def work(_requests: int, lines: int, _wanted: Wanted) -> int:
        os.write(lines, b"one\n")
        time.sleep(3600)
        return 0

    child = start_child(work, Wanted(), now=0.0)
    assert lines_of(child) == [b"one"]
    child.kill(3.0)
    wait_for(lambda: is_gone(child.pid), "its end")
    assert (child.reap(), child.killed) == (-9, 3.0)


def echo(requests: int, lines: int, _wanted: Wanted) -> int:
    """Say each request again as soon as it is whole, and nothing before a first line has come."""
    received = b""
    while chunk := os.read(requests, 1 << 16):
        received += chunk
        *whole, received = received.split(b"\n")
        for line in whole:
            os.write(lines, line + b"\n")
    return 0


def test_a_request_reaches_the_child_and_one_that_comes_too_late_is_no_error() -> None:
    """What is wanted at its start is in its memory. One that has ended is asked nothing."""

    def work(requests: int, lines: int, wanted: Wanted) -> int:
        os.write(lines, os.read(requests, 100).rstrip(b"\n") + (b" may\n" if wanted.makes_nodes else b"\n"))
        return 0

    child = start_child(work, Wanted(makes_nodes=True), now=0.0)
    child.ask(Request(LOOK))
    assert lines_of(child) == [dump_request(LOOK).rstrip(b"\n") + b" may"]
    wait_for(lambda: is_gone(child.pid), "its end")
    child.ask(Request(LOOK))
    assert not child.is_asked
    assert child.read(0.0) is None
    assert child.reap() == 0


PODS = tuple(f"namespace-{'n' * 40}/pod-{'p' * 100}-{number}" for number in range(MOST_PODS))
"""More than a pipe takes at once."""


LARGE = Request(FOLLOW_USE, PODS)


def changing(number: int, card: str) -> Request:
    """Make a request to change MIG of a card."""
    return Request(CHANGE_MIG, change=MigChange(number, card, 1, (), (), 1.0, ()))


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        pytest.param(
            [Request(FOLLOW_USE, PODS[:number]) for number in range(50)],
            [Request(FOLLOW_USE, PODS[:49])], id="the newest list of pods",
        ),
        pytest.param([Request(FOLLOW_USE), Request(LEAVE_USE)], [Request(LEAVE_USE)], id="the end of following"),
        pytest.param([Request(LEAVE_USE), Request(FOLLOW_USE)], [Request(FOLLOW_USE)], id="following again"),
        pytest.param(
            [Request(LOOK), Request(MAKE_NODES), Request(LOOK)], [Request(LOOK), Request(MAKE_NODES)], id="two kinds",
        ),
        pytest.param(
            [changing(1, "GPU-1"), changing(2, "look"), Request(LOOK), changing(3, "GPU-1")],
            [changing(3, "GPU-1"), changing(2, "look"), Request(LOOK)], id="the newest change of each card",
        ),
    ],
)  # fmt: skip
def test_of_requests_that_wait_the_newest_of_each_kind_is_written(asked: list[Request], written: list[Request]) -> None:
    """After the one that is under way; nobody waits for a child that reads nothing."""
    child = start_child(echo, Wanted(), now=0.0)
    os.kill(child.pid, signal.SIGSTOP)
    for request in (LARGE, *asked):
        child.ask(request)
    assert child.is_asked
    os.kill(child.pid, signal.SIGCONT)
    found: list[bytes] = []

    def has_all() -> bool:
        child.write()
        found.extend(child.read(0.0) or ())
        return len(found) > len(written)

    wait_for(has_all, "all requests")
    assert [parse_request(line) for line in found] == [LARGE, *written]
    assert not child.is_asked
    child.kill(0.0)
    wait_for(lambda: child.reap() is not None, "its end")
