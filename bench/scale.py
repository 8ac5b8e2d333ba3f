"""What a fleet costs the controller: memory, CPU, requests, and how soon it acts.

``python bench/scale.py`` starts a real API server, etcd, registry and container engine (``testbed``) and the real
controller in a process of its own, with the rights of its service account, beside a fleet. It takes two fleets and ten
minutes; ``--all`` takes all four and an hour, ``--cells 1000x5x1,5000x50x10`` those that it names (nodes x kernels x
drivers: every driver is on every node). Needs Debian 12 and root; best on a machine that has nothing else to do.

``--in-process`` needs neither root nor an API server: the controller's own code on a fleet from files. It prints
memory, and the CPU of a listing, of reconciles that recall no plan, and of one after a single pod changed; with
``--profile`` the functions that it goes into, too.

Both print tables with ratios, and whether what is asked for at 5000x50x10 is met.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.scale_parts.cells import CELLS, DEFAULT, Cell, parse_cell  # noqa: E402
from bench.scale_parts.tables import Row, ratio, table  # noqa: E402

REST_SECONDS = 120.0
"""A watch is begun anew so often."""

REAL = (
    Row("steady", "memory, steady", "MiB", 150),
    Row("peak at start", "memory, peak from the start on", "MiB", 200),
    Row("peak at relist", "memory, peak while everything is listed anew", "MiB", 200),
    Row("start seconds", "start to first reconcile", "s"),
    Row("start", "CPU until at rest"),
    Row("one pod", "CPU of one changed pod", "ms", 20),
    Row("one pod reconciles", "reconciles that follow it", "number"),
    Row("full", "CPU after every driver's spec changed", "ms", 400),
    Row("relist", "CPU to list everything anew"),
    Row("rest", "CPU of a minute at rest"),
    Row("rest between", "without what each minute brings"),
    Row("reconciles", "reconciles a minute at rest", "number"),
    Row("requests", "API requests a minute at rest", "number", 40),
    Row("lists", "LISTs among them", "number", 0),
    Row("label", "a node's new kernel label to the first write", "s", 1),
    Row("label at worst", "at worst", "s"),
    Row("moved in", "1,000 nodes get the label of a new kernel within", "s"),
    Row("build", "from the first of them to the build's start", "s"),
    Row("builds", "builds started", "number", 1),
    Row("placed", "from the first of them to an image, and a DaemonSet for all", "s"),
    Row("peak", "memory, peak until then", "MiB"),
)
IN_PROCESS = (
    Row("empty", "memory before anything is read", "MiB"),
    Row("steady", "memory, steady", "MiB", 150),
    Row("peak at start", "memory, peak until then", "MiB", 200),
    Row("peak at relist", "memory, peak while everything is listed anew", "MiB", 200),
    Row("list", "CPU to list and decode everything"),
    Row("relist", "CPU to list everything anew"),
    Row("start", "CPU of the first reconcile"),
    Row("full: observe", "CPU of a reconcile that recalls no plan: observe"),
    Row("full: resolve", "resolve"),
    Row("full: images", "states of images"),
    Row("full: plan", "plan", "ms", 400),
    Row("full", "CPU of a reconcile, nothing changed"),
    Row("one pod", "CPU of one changed pod: its event, and the reconcile", "ms", 20),
    Row("actions at rest", "actions at rest", "number"),
)

Measured = dict[Cell, dict[str, Any]]


def main() -> None:
    """Measure and print."""
    flags = _flags(sys.argv[1:])
    if flags.in_process:
        in_process(flags.cells, profiled=flags.profile)
    else:
        on_a_real_api_server(flags.cells, rest_seconds=flags.rest_seconds)


def _flags(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a fleet costs the controller.")
    parser.add_argument("--cells", type=_cells, default=DEFAULT, help="fleets, such as 1000x5x1,5000x50x10")
    parser.add_argument("--all", dest="cells", action="store_const", const=CELLS, help="all four fleets")
    parser.add_argument("--in-process", action="store_true", help="without an API server")
    parser.add_argument("--profile", action="store_true", help="with --in-process: print the most expensive functions")
    parser.add_argument("--rest-seconds", type=float, default=REST_SECONDS, help="how long requests are counted")
    return parser.parse_args(arguments)


def _cells(text: str) -> tuple[Cell, ...]:
    try:
        return tuple(map(parse_cell, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


# --- with real parts --------------------------------------------------------------------------------------------------


def on_a_real_api_server(cells: Sequence[Cell], *, rest_seconds: float) -> None:
    """Measure a real controller beside fleets on a real API server, and print."""
    from bench.scale_parts import real  # noqa: PLC0415 - the other way needs no testbed
    from testbed.progress import for_terminal  # noqa: PLC0415 - as above
    from testbed.testbed import Testbed  # noqa: PLC0415 - as above

    progress, measured = for_terminal(), Measured()
    with (
        tempfile.TemporaryDirectory(prefix="driverwright-scale-") as folder,
        Testbed.start(nodes=False, host_node=False, progress=progress) as testbed,
    ):
        ground = real.Ground.on(testbed, Path(folder), progress)
        for cell in cells:
            measured[cell] = real.measure(ground, cell, rest_seconds=rest_seconds)
            print(f"{cell}: {json.dumps(measured[cell])}", flush=True)
    print(f"\n{table(REAL, measured)}\n")
    for cell, found in measured.items():
        print(f"{cell}, requests a minute at rest: {_counted(found['by verb'])}")
    report_models(cells[0])


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


# --- in one process ---------------------------------------------------------------------------------------------------


def in_process(cells: Sequence[Cell], *, profiled: bool) -> None:
    """Measure the controller's code on fleets from files, each in a process of its own, and print."""
    measured = Measured()
    for cell in cells:
        with tempfile.TemporaryDirectory(prefix="driverwright-scale-") as folder:
            sizes = json.loads(_python("bench.scale_parts.write_fleet", str(cell), folder))
            words = (f"{count} {name} of {size / count / 1000:.1f} kB" for name, (count, size) in sizes.items())
            print(f"{cell}: {', '.join(words)}", flush=True)
            measured[cell] = figures = json.loads(_python("bench.scale_parts.in_process", folder))
            if profiled:
                print(_python("bench.scale_parts.in_process", folder, "--profile"), flush=True)
        print(f"{cell}: steady {figures['steady']:.0f} MiB, full plan {figures['full: plan']:.0f} ms", flush=True)
    print(f"\n{table(IN_PROCESS, measured)}\n")
    report_models(cells[0])


def report_models(cell: Cell) -> None:
    """Print what the same objects cost in the models of the official client."""
    with tempfile.TemporaryDirectory(prefix="driverwright-scale-") as folder:
        _python("bench.scale_parts.write_fleet", str(cell), folder)
        found = {way: json.loads(_python("bench.scale_parts.typed", folder, way)) for way in ("ours", "typed")}
    ours, typed = found["ours"], found["typed"]
    print(f"{ours['nodes']} Nodes and {ours['pods']} driver pods, decoded and held")
    print(f"  by the controller        {ours['mib']:.1f} MiB, {ours['ms']:.0f} ms of CPU")
    print(f"  in the client's models   {typed['mib']:.1f} MiB, {typed['ms']:.0f} ms of CPU")
    print(f"  that is                  {ratio(typed['mib'], ours['mib'])} and {ratio(typed['ms'], ours['ms'])} as much")


def _python(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
