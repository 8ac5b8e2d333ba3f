"""A child, as its supervisor has it."""

import os
import time

from device_agent.nvml_container.child_process import Child, start_child
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

    def work(_requests: int, lines: int, _may_make_nodes: bool) -> int:
        os.write(lines, b"one\ntwo\n")
        return 7

    child = start_child(work, may_make_nodes=False, now=0.0)
    wait_for(lambda: is_gone(child.pid), "its end")
    assert child.reap() is None
    assert child.read(1.0) == [b"one", b"two"]
    assert child.reap() is None
    assert child.read(2.0) is None
    assert (child.reap(), child.heard) == (7, 1.0)


def test_a_child_that_was_killed_is_reaped_whatever_it_has_said() -> None:
    """What is left of its lines is not wanted."""

    def work(_requests: int, lines: int, _may_make_nodes: bool) -> int:
        os.write(lines, b"one\n")
        time.sleep(3600)
        return 0

    child = start_child(work, may_make_nodes=False, now=0.0)
    assert lines_of(child) == [b"one"]
    child.kill(3.0)
    wait_for(lambda: is_gone(child.pid), "its end")
    assert (child.reap(), child.killed) == (-9, 3.0)


def test_a_request_reaches_the_child_and_too_many_are_no_error() -> None:
    """Nobody waits for a child that does not read; one that has ended is no error either."""

    def work(requests: int, lines: int, may_make_nodes: bool) -> int:
        os.write(lines, os.read(requests, 1) + (b" may\n" if may_make_nodes else b"\n"))
        return 0

    child = start_child(work, may_make_nodes=True, now=0.0)
    child.ask(b"m")
    assert lines_of(child) == [b"m may"]
    wait_for(lambda: is_gone(child.pid), "its end")
    child.ask(b"l" * 1_000_000)
    assert child.read(0.0) is None
    assert child.reap() == 0


def test_a_full_pipe_is_no_error() -> None:
    """The child reads nothing."""

    def work(_requests: int, _lines: int, _may_make_nodes: bool) -> int:
        time.sleep(3600)
        return 0

    child = start_child(work, may_make_nodes=False, now=0.0)
    for _ in range(3):
        child.ask(b"l" * 100_000)
    child.kill(0.0)
    wait_for(lambda: child.reap() is not None, "its end")
