"""A plugin of pytest that runs the tests in several processes: ``-p tests.side_by_side``.

One process collects the tests, forks the others, and reports. So nothing is imported or collected twice, and no
garbage collection looks again at what exists by then. Each process takes the next few tests when it has none left.
"""

import gc
import os
import traceback
from collections.abc import Generator, Iterator
from itertools import pairwise
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

PROCESSES = len(os.sched_getaffinity(0)) + 1
"""More than cores: some tests wait for most of their time."""

TAKEN_AT_ONCE = 20
"""Tests of one file. Few, or one process works long after the others; many, or each process makes all fixtures."""

NUMBER = 4
"""Bytes of the number of a test."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collections: nearly all that is made here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests; where none are to be run, pytest itself says why."""
    if session.testsfailed or session.config.option.collectonly or not session.items:
        return None
    # Made here, or each process makes one that none of them deletes.
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    gc.freeze()
    turns = _turns(session.items)
    connections: list[Connection] = []
    pids: list[int] = []
    try:
        for _ in range(PROCESSES):
            ours, theirs = Pipe(duplex=False)
            connections.append(ours)
            pids.append(os.fork())
            if not pids[-1]:
                for connection in connections:
                    connection.close()
                _work(session, turns, theirs)
            theirs.close()
        _report(session, connections)
    finally:
        while os.read(turns, 2 * NUMBER):
            """What no process has begun stays undone."""
        os.close(turns)
        for connection in connections:
            connection.close()
        for pid in pids:
            os.waitpid(pid, 0)
    return True


def _turns(items: list[pytest.Item]) -> int:
    """Return a pipe with the first number of each turn and the one after its last, from which all processes read.

    A few bytes are read whole or not at all, whoever else reads. A pipe holds 8,000 turns.
    """
    begins = [0]
    for number, (before, item) in enumerate(pairwise(items), start=1):
        if item.path != before.path or number - begins[-1] == TAKEN_AT_ONCE:
            begins.append(number)
    readable, writable = os.pipe()
    os.set_blocking(writable, False)  # An error is better than to wait for a reader.
    with os.fdopen(writable, "wb") as file:
        for begin, end in pairwise((*begins, len(items))):
            file.write(begin.to_bytes(NUMBER) + end.to_bytes(NUMBER))
    return readable


def _taken(turns: int, items: list[pytest.Item]) -> Iterator[tuple[int, pytest.Item]]:
    """Take turns until there are none; gives each test with its number."""
    while turn := os.read(turns, 2 * NUMBER):
        begin, end = int.from_bytes(turn[:NUMBER]), int.from_bytes(turn[NUMBER:])
        yield from enumerate(items[begin:end], start=begin)


class _Sender:
    """Sends what pytest reports of a test, instead of showing it in this process."""

    def __init__(self, reports: Connection) -> None:
        self._reports = reports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test."""
        self._reports.send(runtestprotocol(item, log=False, nextitem=nextitem))
        return True


def _work(session: pytest.Session, turns: int, reports: Connection) -> NoReturn:
    """Run tests until all are taken, and end this process."""
    config: Any = session.config
    try:
        # The files that keep what is printed are not shared: each process would write where the others do.
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        # Of its own: who makes a folder looks at all that are there.
        config._tmp_path_factory._basetemp = config._tmp_path_factory.mktemp("process")
        config.pluginmanager.register(_Sender(reports))
        taken = _taken(turns, session.items)
        current = next(taken, None)
        while current:
            number, item = current
            reports.send(number)
            current = next(taken, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=current[1] if current else None)
        # What pytest looks for at the end of each process, such as exceptions in destructors.
        config._ensure_unconfigure()
        reports.send(None)
    except BaseException:  # noqa: BLE001 - it is reported by the other process
        reports.send(traceback.format_exc())
    finally:
        os._exit(0)


def _report(session: pytest.Session, connections: list[Connection]) -> None:
    """Report what the processes send until each has ended.

    Raises:
        RuntimeError: when one ended in the middle, or not every test was run.
    """
    hook = session.config.hook
    current: dict[Connection, pytest.Item | None] = dict.fromkeys(connections)
    done = 0
    while current:
        for connection in wait(list(current)):
            assert isinstance(connection, Connection)
            item = current[connection]
            match _received(connection):
                case None:
                    del current[connection]
                case int(number):
                    item = current[connection] = session.items[number]
                    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                case list(reports):
                    assert item is not None
                    for report in reports:
                        hook.pytest_runtest_logreport(report=report)
                    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                    done += 1
                case failure:
                    raise RuntimeError(f"a process failed at {item.nodeid if item else 'its start'}: {failure}")
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    if done != len(session.items):
        raise RuntimeError(f"{done} of {len(session.items)} tests were run")


def _received(connection: Connection) -> object:
    """Return a number of a test that begins, the reports of one, None at the end, or why a process failed."""
    try:
        return connection.recv()
    except EOFError:
        return "it was ended"
