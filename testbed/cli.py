"""The command line of the testbed: the only place that prints results and chooses the exit status."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from testbed import places
from testbed.api import is_node_ready
from testbed.errors import TestbedError
from testbed.kernels import GENERIC, available_releases, choose_kernels, newest_release
from testbed.kube_binaries import ensure_kube_binaries
from testbed.newer_kubernetes import NotBuiltError, ensure_newer_kubernetes
from testbed.packages import refreshed_apt
from testbed.progress import Progress, for_terminal
from testbed.testbed import Testbed

_console = Console(highlight=False, soft_wrap=True)
_OTHER = "trixie"
"""The Debian release that guests can have beside the tree's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options, for_terminal())
    except TestbedError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        for note in getattr(error, "__notes__", []):
            Console(stderr=True).print(note, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testbed",
        description="A real Kubernetes on this Debian machine: control plane, container engine, registry, nodes.",
        epilog="The first `up` builds Kubernetes from Debian's source package (about 5 minutes), later ones do not.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, help_text: str, *, among: object = commands) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = among.add_parser(name, help=help_text, description=help_text)  # type: ignore[attr-defined]
        added.set_defaults(command=function)
        return added

    command("prepare", _prepare, "build Kubernetes where this machine has none: the first `up` would do it")
    command("prepare-newer", _prepare_newer, "build the rules of a newer Kubernetes, where Debian sid has them")
    up = command("up", _up, "start a testbed that runs until `down`")
    up.add_argument("--no-host-node", action="store_true", help="do not register this machine as a node")
    _ground_option(command("status", _status, "show what runs and how to reach it"))
    down = command("down", _down, "stop a testbed and remove everything it created")
    _ground_option(down)
    down.add_argument("--all", action="store_true", help="stop all testbeds that `up` started")
    down.add_argument("--keep-logs", action="store_true", help="keep the logs")
    kernels = command("kernels", _kernels, "list the kernels that guests can boot; * marks those chosen first")
    kernels.add_argument("--count", type=int, default=3, help="how many kernels that refuse each other (default 3)")
    _add_node_commands(command("node", _node_list, "add, list, reboot and ask QEMU guests"), command)
    return parser


def _add_node_commands(node: argparse.ArgumentParser, command: Callable[..., argparse.ArgumentParser]) -> None:
    among = node.add_subparsers(required=True, metavar="COMMAND")
    add = command("add", _node_add, "boot a QEMU guest and wait until its node is Ready", among=among)
    add.add_argument("name")
    add.add_argument("--kernel", metavar="RELEASE", help="as `kernels` lists them (default: the oldest chosen one)")
    add.add_argument("--image", action="append", default=[], help="an image of the testbed's registry to load before")
    add.add_argument("--memory", type=int, default=512, metavar="MIB", help="the guest's memory (default 512)")
    add.add_argument(
        "--qemu", action="append", default=[], metavar="WORD", help="a further argument for QEMU, repeatable"
    )
    reboot = command("reboot", _node_reboot, "reboot a guest's disks into a kernel", among=among)
    reboot.add_argument("name")
    reboot.add_argument("--kernel", metavar="RELEASE", help="as `kernels` lists them (default: the same again)")
    run = command("run", _node_run, "run a shell command as root in a guest, by its serial port", among=among)
    run.add_argument("name")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    off = command("off", _node_off, "power a guest off; `reboot` starts it again", among=among)
    off.add_argument("name")
    off.add_argument("--hard", action="store_true", help="cut the power")
    listed = command("list", _node_list, "list all nodes", among=among)
    for parser in (add, reboot, run, off, listed):
        _ground_option(parser)


def _ground_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ground", metavar="NAME", help="which testbed, if several run (see `status`)")


def _prepare(_options: argparse.Namespace, progress: Progress) -> None:
    binaries = ensure_kube_binaries(progress)
    _console.print(f"Kubernetes {binaries.release}: {binaries.folder}")


def _prepare_newer(_options: argparse.Namespace, progress: Progress) -> None:
    """Say what there is; that there is nothing is no error, as nothing but tests asks for it."""
    try:
        newer = ensure_newer_kubernetes(progress)
    except NotBuiltError as error:
        _console.print(f"no rules of a newer Kubernetes: {error}", markup=False)
    else:
        _console.print(f"rules of {newer}: {newer.folder}")


def _up(options: argparse.Namespace, progress: Progress) -> None:
    _show(Testbed.up(progress=progress, host_node=not options.no_host_node))


def _status(options: argparse.Namespace, progress: Progress) -> None:
    folders = [places.find_ground(options.ground)] if options.ground else places.running_grounds()
    if not folders:
        _console.print("no testbed is running")
    for folder in folders:
        _show(Testbed.attach(folder.name, progress=progress))


def _down(options: argparse.Namespace, progress: Progress) -> None:
    folders = places.started_by_hand(places.running_grounds()) if options.all else [places.find_ground(options.ground)]
    for folder in folders:
        with progress.step(f"End {folder.name}"):
            ground = Testbed.attach(folder.name, progress=progress)
            ground.down(keep_logs=options.keep_logs)
    places.remove_remains()


def _kernels(options: argparse.Namespace, progress: Progress) -> None:
    chosen = {kernel.release: kernel for kernel in choose_kernels(options.count, progress)}
    for release, version in available_releases(refreshed_apt()).items():
        mark = f"* module_layout {chosen[release].module_layout_crc}" if release in chosen else ""
        _console.print(f"{release:40} {version:24} {mark}", markup=False)
    stock = available_releases(refreshed_apt(_OTHER), GENERIC)
    newest = newest_release(stock, GENERIC)
    _console.print(f"{newest:40} {stock[newest]:24} with a system of {_OTHER}", markup=False)


def _attach(options: argparse.Namespace, progress: Progress) -> Testbed:
    return Testbed.attach(options.ground, progress=progress)


def _node_add(options: argparse.Namespace, progress: Progress) -> None:
    ground = _attach(options, progress)
    chosen = ground.kernels(3)
    kernel = ground.guests.kernel(options.kernel) if options.kernel else chosen[0]
    if options.image:
        ground.preload(options.image)
    guest = ground.add_guest(options.name, kernel, options.qemu, memory_mib=options.memory)
    guest.wait_ready()


def _node_reboot(options: argparse.Namespace, progress: Progress) -> None:
    ground = _attach(options, progress)
    guest = ground.guest(options.name)
    guest.reboot(ground.guests.kernel(options.kernel) if options.kernel else None)
    guest.wait_ready()


def _node_run(options: argparse.Namespace, progress: Progress) -> None:
    status, output = _attach(options, progress).guest(options.name).run(" ".join(options.words))
    _console.out(output, end="")
    if status != 0:
        raise TestbedError(f"the command ended with status {status}")


def _node_off(options: argparse.Namespace, progress: Progress) -> None:
    guest = _attach(options, progress).guest(options.name)
    if options.hard:
        guest.power_cut()
    else:
        guest.power_off()


def _node_list(options: argparse.Namespace, progress: Progress) -> None:
    ground = _attach(options, progress)
    table = Table("node", "state", "kernel", "boot", box=None)
    for node in ground.api.request("/api/v1/nodes")["items"]:
        name, info = node["metadata"]["name"], node["status"]["nodeInfo"]
        off = name in ground.guests.names() and not ground.guest(name).is_running()
        state = "off" if off else "Ready" if is_node_ready(node) else "not Ready"
        table.add_row(name, state, info["kernelVersion"], info["bootID"][:8])
    _console.print(table)


def _show(ground: Testbed) -> None:
    table = Table(title=f"testbed {ground.name}", title_justify="left", show_header=False, box=None)
    for name, state in sorted(ground.processes.states().items()):
        table.add_row(name, state, style="" if state == "running" else "red")
    _console.print(table)
    if ground.has_kubernetes:
        _console.print(f"export KUBECONFIG={ground.kubeconfig}")
        _console.print(f"export PATH={ground.binaries.folder}:$PATH")
    if ground.has_engine:
        _console.print(f"export DOCKER_HOST={ground.engine.socket}")
        _console.print(f"registry: {ground.registry.host}")
    _console.print(f"logs: {ground.logs}")
