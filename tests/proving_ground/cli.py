"""The command line of the proving ground: the only place that prints results and chooses the exit status."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.proving_ground import places
from tests.proving_ground.errors import ProvingGroundError
from tests.proving_ground.ground import ProvingGround
from tests.proving_ground.progress import Progress, for_terminal

_console = Console(highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options, for_terminal())
    except ProvingGroundError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        for note in getattr(error, "__notes__", []):
            Console(stderr=True).print(note, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proving_ground",
        description="A real Kubernetes on this Debian machine: control plane, container engine, registry, nodes.",
        epilog="The first `up` builds Kubernetes from Debian's source package (about 5 minutes), later ones do not.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, help_text: str, *, among: object = commands) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = among.add_parser(name, help=help_text, description=help_text)  # type: ignore[attr-defined]
        added.set_defaults(command=function)
        return added

    up = command("up", _up, "bring up a ground that runs until `down`")
    up.add_argument("--no-host-node", action="store_true", help="do not make this machine a node")
    _ground_option(command("status", _status, "show what runs and how to reach it"))
    down = command("down", _down, "end a ground and remove every trace of it")
    _ground_option(down)
    down.add_argument("--all", action="store_true", help="end all grounds of this machine")
    down.add_argument("--keep-logs", action="store_true", help="leave the logs behind")
    return parser


def _ground_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ground", metavar="NAME", help="which ground, where several run (see `status`)")


def _up(options: argparse.Namespace, progress: Progress) -> None:
    _show(ProvingGround.up(progress=progress, host_node=not options.no_host_node))


def _status(options: argparse.Namespace, progress: Progress) -> None:
    folders = [places.find_ground(options.ground)] if options.ground else places.running_grounds()
    if not folders:
        _console.print("no proving ground is running")
    for folder in folders:
        _show(ProvingGround.attach(folder.name, progress=progress))


def _down(options: argparse.Namespace, progress: Progress) -> None:
    folders = places.running_grounds() if options.all else [places.find_ground(options.ground)]
    for folder in folders:
        with progress.step(f"End {folder.name}"):
            ground = ProvingGround.attach(folder.name, progress=progress)
            ground.down(keep_logs=options.keep_logs)
    places.remove_remains()


def _show(ground: ProvingGround) -> None:
    table = Table(title=f"proving ground {ground.name}", title_justify="left", show_header=False, box=None)
    for name, state in sorted(ground.processes.states().items()):
        table.add_row(name, state, style="" if state == "running" else "red")
    _console.print(table)
    _console.print(f"export KUBECONFIG={ground.kubeconfig}")
    _console.print(f"export DOCKER_HOST={ground.engine.socket}")
    _console.print(f"export PATH={ground.binaries.folder}:$PATH")
    _console.print(f"registry: {ground.registry.host}    logs: {ground.logs}")
