"""A plugin of pytest that runs the tests in several processes: ``-p tests.side_by_side``.

One process finds the files and imports what several of them import, forks the others, and reports. Each of the others
takes the next file when it has run its last one, and collects it only then. Files that are known to take long come
first, then the largest: no process works long after the others.

Tests that are named one by one, and ``--collect-only``, are left to pytest.
"""

import gc
import importlib
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item
from hypothesis.internal import entropy

PROCESSES = len(os.sched_getaffinity(0)) + 4
"""More than cores: some tests wait for most of their time. ``--processes`` says another number."""

COSTLY = (
    "driver_builder/loader/test_loader",
    "driver_builder/world/test_world",
    "nfd_worker/test_daemon",
    "test_spec_rules",
    "test_worker_and_server",
)
"""What the paths of files contain that take much longer than their size says."""

NUMBER = 4
"""Bytes of the number of a file."""

YOUNG = 10_000
"""Objects that are made between two garbage collections: most tests make more than Python's 700."""

WITH_THREADS = ("helm_python",)
"""Modules that start threads when they are imported (Go's runtime): a fork has none of them, and waits for them."""

_IMPORT = re.compile(r"^(?:from ([\w.]+) import (.+)|import ([\w.]+))$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Begun:
    """A test begins."""

    nodeid: str
    location: tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class Collected:
    """A file was collected: its number, how many of its tests are run, and how many are not."""

    number: int
    selected: int
    deselected: int


class _Files:
    """Finds the files with tests and leaves them as they are."""

    def __init__(self) -> None:
        self.found: list[pytest.File] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect without garbage collections: nearly all that is made here stays."""
        gc.disable()
        try:
            result = yield
            self.found.sort(key=lambda file: (_is_costly(file.path), file.path.stat().st_size), reverse=True)
            _import_shared([file.path for file in self.found])
            return result
        finally:
            gc.enable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        """Note a file instead of collecting it."""
        if not isinstance(collector, pytest.File):
            return None
        self.found.append(collector)
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; where none are to be run, pytest itself says why."""
        if session.testsfailed or not self.found:
            return None
        session.config.pluginmanager.unregister(self)
        # Made here, or each process makes one that none of them deletes.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        _run(session, self.found)
        return True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line say how many processes there are."""
    parser.addoption("--processes", type=int, default=PROCESSES)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin, unless there is nothing to share out."""
    config = session.config
    if not config.option.collectonly and not any("::" in argument for argument in config.args):
        config.pluginmanager.register(_Files())


def _is_costly(file: Path) -> bool:
    return any(part in file.as_posix() for part in COSTLY)


def _import_shared(files: Sequence[Path]) -> None:
    """Import what several files import, but files with tests, which import what they like.

    What cannot be imported is reported when its file is collected.
    """
    counts = Counter(name for file in files for name in set(_imports(file.read_text(errors="replace"))))
    shared = {name for name, count in counts.items() if count > 1 and ".test_" not in name}
    for name in sorted(shared.difference(WITH_THREADS)):
        with suppress(Exception):
            importlib.import_module(name)
    if found := set(sys.modules).intersection(WITH_THREADS):
        raise pytest.UsageError(f"{', '.join(found)} must be imported by tests alone, since the forks have no threads")


def _imports(source: str) -> Iterator[str]:
    """Return what a file imports at its top: modules, and names that may be modules of a package."""
    for package, names, module in _IMPORT.findall(source):
        yield module or package
        yield from (f"{package}.{name}" for name in names.split(", ") if name.isidentifier() and name.islower())


def _run(session: pytest.Session, files: Sequence[pytest.File]) -> None:
    gc.set_threshold(YOUNG)
    # Hypothesis looks for who refers to its random numbers, and warns in each process if only frozen objects do (3.14).
    with entropy.deterministic_PRNG():
        """They are made here."""
    gc.freeze()
    turns = _turns(len(files))
    connections: list[Connection] = []
    pids: list[int] = []
    try:
        for _ in range(session.config.option.processes):
            ours, theirs = Pipe(duplex=False)
            connections.append(ours)
            pids.append(os.fork())
            if not pids[-1]:
                for connection in connections:
                    connection.close()
                _work(session, files, turns, theirs)
            theirs.close()
        _report(session, connections, files)
    finally:
        while os.read(turns, NUMBER):
            """What no process has begun stays undone."""
        os.close(turns)
        for connection in connections:
            connection.close()
        for pid in pids:
            os.waitpid(pid, 0)


def _turns(count: int) -> int:
    """Return a pipe with the number of each file, from which all processes read.

    A few bytes are read whole or not at all, whoever else reads. A pipe holds 16,000 numbers.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)  # An error is better than to wait for a reader.
    with os.fdopen(writable, "wb") as file:
        for number in range(count):
            file.write(number.to_bytes(NUMBER))
    return readable


class _Sender:
    """Sends what pytest reports, instead of showing it in this process."""

    def __init__(self, session: pytest.Session, reports: Connection) -> None:
        self._session = session
        self._reports = reports
        self._deselected = 0

    def tests(self, turns: int, files: Sequence[pytest.File]) -> Iterator[pytest.Item]:
        """Take files and collect them until there are none."""
        while turn := os.read(turns, NUMBER):
            number = int.from_bytes(turn)
            self._deselected = 0
            items = self._collected(files[number])
            self._reports.send(Collected(number, len(items), self._deselected))
            yield from items

    def _collected(self, file: pytest.File) -> list[pytest.Item]:
        config = self._session.config
        gc.disable()
        try:
            with catch_warnings_for_item(config=config, ihook=config.hook, when="collect", item=None):
                items = [*self._session.genitems(file)]
                config.hook.pytest_collection_modifyitems(session=self._session, config=config, items=items)
        finally:
            gc.enable()
        return items

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count what is not run."""
        self._deselected += len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Send why a file or class was not collected."""
        if not report.passed:
            self._reports.send(pytest.CollectReport(
                report.nodeid, report.outcome, report.longrepr, [], sections=report.sections
            ))  # fmt: skip

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test."""
        self._reports.send(Begun(item.nodeid, item.location))
        self._reports.send(runtestprotocol(item, log=False, nextitem=nextitem))
        return True


def _work(session: pytest.Session, files: Sequence[pytest.File], turns: int, reports: Connection) -> NoReturn:
    """Run tests until all are taken, and end this process."""
    config: Any = session.config
    try:
        # The files that keep what is printed are not shared: each process would write where the others do.
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        # Of its own: who makes a folder looks at all that are there.
        config._tmp_path_factory._basetemp = config._tmp_path_factory.mktemp("process")
        sender = _Sender(session, reports)
        config.pluginmanager.register(sender)
        tests = sender.tests(turns, files)
        current = next(tests, None)
        while current:
            following = next(tests, None)
            config.hook.pytest_runtest_protocol(item=current, nextitem=following)
            current = following
        # What pytest looks for at the end of each process, such as exceptions in destructors: it searches ten times.
        gc.collect()
        gc.freeze()
        config._ensure_unconfigure()
        reports.send(None)
    except BaseException:  # noqa: BLE001 - it is reported by the other process
        reports.send(traceback.format_exc())
    finally:
        os._exit(0)


def _report(session: pytest.Session, connections: list[Connection], files: Sequence[pytest.File]) -> None:
    """Report what the processes send until each has ended.

    Raises:
        RuntimeError: when one ended in the middle, or not every test was run.
    """
    hook = session.config.hook
    sizes = [file.path.stat().st_size for file in files]
    current: dict[Connection, Begun | None] = dict.fromkeys(connections)
    collected: list[Collected] = []
    done = 0
    while current:
        for connection in wait(list(current)):
            assert isinstance(connection, Connection)
            begun = current[connection]
            match _received(connection):
                case None:
                    del current[connection]
                case Collected() as file:
                    collected.append(file)
                    session.testscollected = _estimated(collected, sizes)
                    hook.pytest_deselected(items=[files[file.number]] * file.deselected)
                case pytest.CollectReport() as report:
                    hook.pytest_collectreport(report=report)
                case Begun(nodeid, location) as begun:
                    current[connection] = begun
                    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
                case list(reports):
                    assert begun is not None
                    for report in reports:
                        hook.pytest_runtest_logreport(report=report)
                    hook.pytest_runtest_logfinish(nodeid=begun.nodeid, location=begun.location)
                    done += 1
                case failure:
                    raise RuntimeError(f"a process failed at {begun.nodeid if begun else 'its start'}: {failure}")
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    if (len(collected), done) != (len(sizes), session.testscollected):
        tests = f"{done} of {session.testscollected} tests"
        raise RuntimeError(f"{tests} and {len(collected)} of {len(sizes)} files were run")


def _estimated(collected: Sequence[Collected], sizes: Sequence[int]) -> int:
    """Say how many tests there are, which is known when all files are collected: pytest shows progress by it."""
    known = sum(file.selected for file in collected)
    if len(collected) == len(sizes):
        return known
    seen = sum(sizes[file.number] for file in collected)
    return known * sum(sizes) // max(seen, 1) + 1


def _received(connection: Connection) -> object:
    """Return what a process sent: None at its end, why it failed where it did."""
    try:
        return connection.recv()
    except EOFError:
        return "it was ended"
