"""CPU beside that of an empty interpreter: how many times as much, measured in turns, so that a load weighs on both."""

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROUNDS = 9

_TICK = os.sysconf("SC_CLK_TCK")


def milliseconds_of(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command, its children included; gives its CPU time."""
    actions = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
    pid = os.posix_spawn(command[0], list(command), dict(environment), file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    assert status == 0, f"{command} ended with {status}"
    return (used.ru_utime + used.ru_stime) * 1000


def ticks_of(pid: int) -> float:
    """Give the milliseconds that a running process and its children that have ended took; whole ticks of 10."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1000 / _TICK


def in_turns(empty: Callable[[], float], measured: Callable[[], float], rounds: int = ROUNDS) -> str:
    """Measure both in turns; gives the median and what it is of an empty interpreter."""
    pairs = [(empty(), measured()) for _ in range(rounds)]
    ratios = sorted(ours / least for least, ours in pairs)
    median = statistics.median(ours for _, ours in pairs)
    spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
    return f"{median:.0f} ms, {statistics.median(ratios):.1f} times an empty interpreter's ({spread})"
