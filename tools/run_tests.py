"""``make test``: every test but those marked ``long``; ``make test-long``: these, and more of the ``costly`` ones.

Five processes run side by side. One has the tests that share the cluster of three nodes and is shown as it goes; one
those that need a cluster whose only node is this machine and those that boot kernels, one those with an engine, one
those with an API server, and one the unit tests: these four are shown when they end. Tests with real parts wait for
more than half of their time, and the unit tests take what processor time that leaves: they run after the others. Before
all of them runs the build of Kubernetes, where this machine has none: three of the five wait for it. After all of them
runs that of the rules of a newer one, for which tests wait that come last.

``make unit`` has the unit tests alone, without those that play worlds, on all cores (``tests.side_by_side``).

Each process leaves a JUnit file in ``build/tests`` and, as it goes, what its tests took; what a failed test's testbed
looked like is in ``build/artefacts``. The long tests run one slice (``tools.slices``) after the other; ``make
test-slice`` runs the one whose turn it is.

CPU-seconds are those of the parts with all processes that they and their testbeds started and waited for. Beside them
stands what the machine's processors worked meanwhile: on a machine that does nothing else, the sum may be no less.
"""

import argparse
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "tests"
LOCK = ROOT / "build" / "tests.lock"

sys.path.insert(0, str(ROOT))

from testbed.packages import surrounding_system  # noqa: E402
from tools import slices  # noqa: E402

UNIT = ("tests/contract", "tests/unit", "-q", "-p", "tests.side_by_side")
WORLDS = "tests/unit/driver_builder/world"
"""They need only Python as unit tests do, and as much time as half of all those."""
BESIDE_OTHERS = f"--processes={len(os.sched_getaffinity(0)) + 2}"
"""Two processes of unit tests more than there are cores: their tests wait too, and in the end nothing else runs."""
BEFORE, AFTER = -5, 5
"""Nice values: a third of what others get, and three times as much. Unit tests have deadlines: none may starve."""
LAST = 15
HOST = (
    "tests/cluster/test_device_agent.py",
    "tests/cluster/test_device_sources.py",
    "tests/cluster/test_job_builder.py",
    "tests/cluster/test_job_kernel_discovery.py",
    "tests/cluster/test_nvidia_devices.py",
)
"""What needs a cluster whose only node is this machine."""
DISCOVERY = "tests/engine/test_kernel_discovery.py"
"""Needs an API server, which no other test of its folder does; first, where that server has no driver yet."""
HOTPLUG = "tests/kernel/test_worker_hotplug.py"
"""As above. The others need an engine at most, and that of a cluster does."""
AS_IT_GOES = ("-p", "tests.as_it_goes")
STAT = Path("/proc/stat")
USAGE = 2
"""The exit status where nothing was run."""
SLOWEST = 10
NO_TESTS = 5
"""pytest's exit status when nothing was selected."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process: its name, what it runs, and its nice value; with one it is in a session of its own.

    Each process of a testbed has such a session. Where the kernel groups by session (CONFIG_SCHED_AUTOGROUP), many busy
    processes of a session get as much as a single one of another, and the nice value is the session's.
    """

    name: str
    arguments: tuple[str, ...]
    module: str = "pytest"
    niceness: int = 0

    @property
    def command(self) -> list[str]:
        """What is run; of tests there are results."""
        results = (*AS_IT_GOES, f"--junitxml={RESULTS / self.name}.xml") if self.module == "pytest" else ()
        return [sys.executable, "-m", self.module, *self.arguments, *results]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a part ended, and what it took."""

    name: str
    status: int
    wall: float
    cpu: float

    @property
    def passed(self) -> bool:
        """Tell whether nothing failed."""
        return self.status in (0, NO_TESTS)

    def __str__(self) -> str:
        verdict = "passed" if self.passed else f"FAILED ({self.status})"
        return f"{self.name}: {verdict}, {self.wall:.0f} s, {self.cpu:.0f} CPU-seconds"


KUBERNETES = Part("kubernetes", ("prepare",), module="testbed", niceness=BEFORE)
"""What a fresh machine takes longest for. It begins a hundred seconds sooner than a testbed would get there."""
NEWER_KUBERNETES = Part("newer-kubernetes", ("prepare-newer",), module="testbed", niceness=LAST)
"""What few tests ask for, and these last: it takes what the others leave. Where Debian sid has no such packages, or
they do not build, it says so and ends well: those tests are skipped."""
BY_HAND = "by-hand"
UNIT_ALONE = Part("unit", (*UNIT, f"--ignore={WORLDS}", "-m", "not long"))


def sliced(name: str) -> Part:
    """Return the part that runs a slice of the long tests."""
    paths = slices.BY_HAND if name == BY_HAND else slices.SLICES[name]
    only_python = paths[0].startswith(UNIT[:2])
    tier = "long or costly" if only_python else "long"
    return Part(name, (*slices.arguments(paths), *(UNIT[2:] if only_python else ()), "-m", slices.tests(name, tier)))


def stages(*, long: bool) -> list[tuple[Part, ...]]:
    """Return the parts of ``make test`` or ``make test-long``, by what runs side by side."""
    if long:
        return [(part,) for part in map(sliced, (*slices.SLICES, BY_HAND))]
    cluster = Part("cluster", ("tests/cluster", *(f"--ignore={path}" for path in HOST), "-m", "not long"))
    host = Part("host", (*HOST, "tests/kernel", f"--ignore={HOTPLUG}", "-m", "not long"))
    engine = Part("engine", ("tests/engine", f"--ignore={DISCOVERY}", "-m", "not long"))
    lives = Part("lives", (DISCOVERY, "tests/api", HOTPLUG, "-m", "not long"))
    unit = Part("unit", (*UNIT, BESIDE_OTHERS, "-m", "not long"), niceness=AFTER)
    return [(cluster, host, engine, lives, unit)]


def renice(pid: int, niceness: int) -> None:
    """Give a process that has just begun a nice value, and its session, where the kernel groups by session.

    Only root may ask for more than others get; where it is refused all are equal.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


class Running:
    """A part at work, shown as it goes or kept in a log."""

    def __init__(self, part: Part, *, shown: bool) -> None:
        self._part = part
        self._began = time.monotonic()
        self._log = None if shown else RESULTS / f"{part.name}.log"
        environment = os.environ | {"DRIVERWRIGHT_TIMES": str(RESULTS / f"{part.name}.times")}
        with ExitStack() as stack:
            output = stack.enter_context(self._log.open("w")) if self._log else None
            both = subprocess.STDOUT if self._log else None
            self._process = subprocess.Popen(
                part.command,
                cwd=ROOT,
                stdout=output,
                stderr=both,
                env=environment,
                start_new_session=part.niceness != 0,
            )
        self.pid = self._process.pid
        if part.niceness:
            renice(self.pid, part.niceness)

    def ended(self, status: int, usage: resource.struct_rusage) -> Ended:
        """Say how it ended; its processor time includes all that it started and saw end."""
        self._process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - self._began
        return Ended(self._part.name, self._process.returncode, wall, usage.ru_utime + usage.ru_stime)

    def said(self) -> str:
        """Return what it printed, unless that was shown."""
        return self._log.read_text() if self._log else ""

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process.returncode is None:
            self._process.terminate()
            self._process.wait()


def run_stage(parts: Sequence[Part]) -> list[Ended]:
    """Run parts side by side; the first is shown as it goes, each other one when it ends."""
    running: dict[int, Running] = {}
    ended: list[Ended] = []
    try:
        for part in parts:
            started = Running(part, shown=part is parts[0])
            running[started.pid] = started
        while len(ended) < len(parts):
            pid, status, usage = os.wait4(-1, 0)
            one = running[pid]
            ended.append(one.ended(status, usage))
            if said := one.said():
                print(f"\n---- {ended[-1].name} ----\n{said}", flush=True)
    finally:
        for one in running.values():
            one.stop()
    return ended


def durations() -> list[tuple[float, str]]:
    """Read how long each test took, with its fixtures, from the JUnit files; the slowest first."""
    cases = [case for path in RESULTS.glob("*.xml") for case in ElementTree.parse(path).iter("testcase")]  # noqa: S314
    found = [(float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases]
    return sorted(found, reverse=True)


def worked(stat: str) -> float:
    """Return the seconds that all processors have worked since the boot, for whomever, by the text of /proc/stat."""
    _, user, nice, system, _idle, _iowait, irq, softirq, *_ = stat.split()
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


def chosen(command: str, name: str | None) -> list[tuple[Part, ...]]:
    """Return the parts of a command of make, by what runs side by side.

    Of ``test-slice`` it is the slice of this name, or the one whose turn it is.
    """
    if command == "unit":
        return [(UNIT_ALONE,)]
    if command == "test-slice":
        return [(sliced(name or slices.due()), KUBERNETES)]
    first, *others = stages(long=command == "test-long")
    return [(*first, KUBERNETES, NEWER_KUBERNETES), *others]


def asked() -> tuple[str, str | None]:
    """Return which command of make is run, and the slice that is asked for, if one is."""
    names = {"unit": "only the unit tests", "test-long": "all long tests", "test-slice": "one slice of them"}
    parser = argparse.ArgumentParser(description="Run the tests (see tests/README.md).")
    for name, meaning in names.items():
        parser.add_argument(f"--{name}", dest="command", action="store_const", const=name, help=meaning)
    choices = (*slices.SLICES, BY_HAND)
    parser.add_argument("--slice", choices=choices, help="which one (default: the one whose turn it is)")
    options = parser.parse_args()
    return options.command or "test", options.slice


@contextmanager
def locked() -> Iterator[bool]:
    """Keep other runs from this checkout's results; False where one is at work: each would remove what others write."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def main() -> int:
    """Run all parts; 1 when one of them found something, 2 where another run is at work in this checkout."""
    command, name = asked()
    with locked() as is_alone:
        if is_alone:
            return run(command, name)
    print(
        f"make {command}: another run is at work in {ROOT}: wait for its end, or use a checkout of its own for each",
        file=sys.stderr,
    )
    return USAGE


def run(command: str, name: str | None) -> int:
    """Run the parts of a command; 1 when one of them found something."""
    began, worked_before = time.monotonic(), worked(STAT.read_text())
    # Whoever ends this process ends the others, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.iterdir():
        old.unlink()
    if command in ("test-long", "test-slice"):
        os.environ.setdefault("HYPOTHESIS_PROFILE", "long")
    ended = [part for stage in chosen(command, name) for part in run_stage(stage)]
    lines = [f"{seconds:8.1f} s  {test}" for seconds, test in durations()]
    (RESULTS / "durations.txt").write_text("\n".join((*lines, "")))
    print(f"\nThe slowest of {len(lines)} tests (all: {RESULTS / 'durations.txt'}):", *lines[:SLOWEST], sep="\n")
    print(*ended, sep="\n")
    passed = all(part.passed for part in ended)
    where = "" if command == "unit" else f" on {surrounding_system()}"
    verdict = f"make {command}: {'passed' if passed else 'FAILED'}{where}"
    wall, cpu = time.monotonic() - began, sum(part.cpu for part in ended)
    machine = worked(STAT.read_text()) - worked_before
    print(f"{verdict} in {wall:.0f} s, {cpu:.0f} CPU-seconds (the machine, whatever ran: {machine:.0f})", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
