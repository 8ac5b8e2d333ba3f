"""What an upgrade costs the controller for each upgraded node, and how much longer than the ideal it takes.

``python bench/rollout.py`` plays waves over fleets of 500 to 5,000 nodes on a simulated clock: the controller's own
code beside an API server in memory, a played DaemonSet controller and played kubelets. It needs neither root nor an API
server. Of each fleet ``--part`` nodes are measured in the wave, or as many as go in four times; ``--part 0`` upgrades
every fleet from begin to end, which takes minutes for 5,000 nodes. The ideal is ceil(nodes / maxUnavailable) times the
time of a node.

It prints a table, and whether what is asked for is met: a time of at most 1.1 times the ideal, and writes and CPU for a
node that do not grow with the fleet.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.rollout_parts.upgrade import Case  # noqa: E402
from bench.scale_parts.tables import shown_value  # noqa: E402

NODES = (500, 1000, 2500, 5000)
BUDGETS = ("10", "5%")
PART = 300
WAVES = 4
"""In fewer the time is not to be compared: at the begin of a wave all nodes are at the same point."""
MOST_TIME = 1.1
MOST_GROWTH = 1.3
"""The largest figure for a node may be so many times the smallest."""

Figures = Mapping[str, Any]


class Row(NamedTuple):
    """A figure: its ``key``, its name, and whether it must be the same for all fleets."""

    key: str
    name: str
    is_constant: bool = False


ROWS = (
    Row("max unavailable", "nodes at once"),
    Row("upgraded", "nodes measured"),
    Row("time ratio", "time, in ideal times"),
    Row("writes", "writes for a node", is_constant=True),
    Row("cpu", "CPU for a node (ms)", is_constant=True),
    Row("reconciles", "reconciles for a node"),
    Row("cpu of a reconcile", "CPU of a reconcile (ms)"),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What an upgrade costs the controller.")
    parser.add_argument("--nodes", type=_numbers, default=NODES, help="sizes of fleets, such as 500,5000")
    parser.add_argument("--budgets", type=lambda text: tuple(text.split(",")), default=BUDGETS, help="such as 10,5%%")
    parser.add_argument("--part", type=int, default=PART, help="nodes that are measured, 0 for all of a fleet")
    flags = parser.parse_args()
    for budget in flags.budgets:
        measured: dict[int, Figures] = {}
        for nodes in flags.nodes:
            measured[nodes] = _measure(nodes, budget, part_of(nodes, budget, flags.part))
            print(f"{nodes} nodes, {budget}: {json.dumps(measured[nodes])}", flush=True)
        print(f"\nmaxUnavailable: {budget}\n\n{table(measured)}\n", flush=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def part_of(nodes: int, budget: str, part: int) -> int:
    """Return how many nodes are measured: some waves of a fleet, 0 for all of one that has hardly more."""
    wanted = max(part, WAVES * Case(nodes, budget).max_unavailable) if part else 0
    return wanted if wanted < nodes / 2 else 0


def _measure(nodes: int, budget: str, part: int) -> Figures:
    """Upgrade a fleet in a process of its own."""
    command = [sys.executable, "-m", "bench.rollout_parts.upgrade", str(nodes), budget, str(part)]
    found = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(found.stdout)
    return figures


def table(measured: Mapping[int, Figures]) -> str:
    """Make a Markdown table: a line for each figure, a column for each fleet, and whether the target is met."""
    lines = [["nodes", *(f"{nodes:,}" for nodes in measured), "target"], ["---", *["--:"] * len(measured), "---"]]
    for row in ROWS:
        values = [found[row.key] for found in measured.values()]
        shown = [f"{value:.3f}" if row.key == "time ratio" else shown_value(value) for value in values]
        lines.append([row.name, *shown, verdict(row, values)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict(row: Row, values: Sequence[float]) -> str:
    """Say whether a figure is what is asked for."""
    if row.key == "time ratio":
        return f"at most {MOST_TIME}: {_met(max(values) <= MOST_TIME)}"
    if not row.is_constant:
        return ""
    growth = max(values) / min(values)
    return f"largest at most {MOST_GROWTH} times the smallest: {_met(growth <= MOST_GROWTH)}, {growth:.2f} times"


def _met(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


if __name__ == "__main__":
    main()
