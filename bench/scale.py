"""What a fleet costs the controller: memory, CPU, requests, and how soon it acts.

``python bench/scale.py --in-process`` needs neither root nor an API server: the controller's own code on a fleet from
files. It prints memory, and the CPU of a listing, of a reconcile in which everything is decided anew, and of one after
a single pod changed; with ``--profile`` the functions that it goes into, too. ``--cells 1000x5x1,5000x50x10`` picks
fleets (nodes x kernels x drivers; every driver is on every node), ``--all`` takes all four.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.scale_parts.cells import CELLS, DEFAULT, Cell, parse_cell  # noqa: E402
from bench.scale_parts.tables import Row, table  # noqa: E402

IN_PROCESS = (
    Row("empty", "memory before anything is read", "MiB"),
    Row("steady", "memory, steady", "MiB", 150),
    Row("peak at start", "memory, peak until then", "MiB", 200),
    Row("peak at relist", "memory, peak while everything is listed anew", "MiB", 200),
    Row("list", "CPU to list and decode everything"),
    Row("relist", "CPU to list everything anew"),
    Row("start", "CPU of the first reconcile"),
    Row("full", "CPU of a reconcile, nothing changed"),
    Row("full: observe", "in its parts: observe"),
    Row("full: resolve", "resolve"),
    Row("full: images", "states of images"),
    Row("full: plan", "a full plan", "ms", 400),
    Row("one pod", "CPU of one changed pod: its event, and the reconcile", "ms", 20),
    Row("actions at rest", "actions at rest", "number"),
)


def main() -> None:
    """Measure and print."""
    flags = _flags(sys.argv[1:])
    in_process(flags.cells, profiled=flags.profile)


def _flags(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a fleet costs the controller.")
    parser.add_argument("--cells", type=_cells, default=DEFAULT, help="fleets, such as 1000x5x1,5000x50x10")
    parser.add_argument("--all", dest="cells", action="store_const", const=CELLS, help="all four fleets")
    parser.add_argument("--in-process", action="store_true", help="without an API server (the only way so far)")
    parser.add_argument("--profile", action="store_true", help="print the most expensive functions")
    return parser.parse_args(arguments)


def _cells(text: str) -> tuple[Cell, ...]:
    try:
        return tuple(map(parse_cell, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def in_process(cells: Sequence[Cell], *, profiled: bool) -> None:
    """Measure the controller's code on fleets from files, each in a process of its own."""
    measured = {}
    for cell in cells:
        with tempfile.TemporaryDirectory(prefix="driverwright-scale-") as folder:
            sizes = json.loads(_python("bench.scale_parts.write_fleet", str(cell), folder))
            words = (f"{count} {name} of {size / count / 1000:.1f} kB" for name, (count, size) in sizes.items())
            print(f"{cell}: {', '.join(words)}", flush=True)
            printed = _python("bench.scale_parts.in_process", folder, *(["--profile"] if profiled else []))
        *profile, last = printed.splitlines()
        print("\n".join(profile), flush=True)
        measured[cell] = figures = json.loads(last)
        print(f"{cell}: steady {figures['steady']:.0f} MiB, full plan {figures['full: plan']:.0f} ms", flush=True)
    print(f"\n{table(IN_PROCESS, measured)}")


def _python(module: str, *arguments: str) -> str:
    command: list[Any] = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
