"""The command ``status``: the state of every driver on every kernel, as its status has it; once, or as it changes."""

import argparse
import logging
import shutil
import sys
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any

from driver_builder.base.errors import ConfigurationError
from driver_builder.base.reasons import IN_TROUBLE
from driver_builder.cli import output, rollout_view, status_view
from driver_builder.cli.common import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, add_output_flag
from driver_builder.cli.rollout_view import RolloutView
from driver_builder.cluster import follower
from driver_builder.cluster.follower import Follower, Source
from driver_builder.config import Settings
from kube_api.client import Client
from kube_api.errors import KubeApiError, Unreachable
from kube_api.resources import DRIVER_CONTAINERS
from kube_api.text import printable

Json = dict[str, Any]

SETTLE_SECONDS = 0.2
"""Changes come in bursts."""
TURN_SECONDS = 2.0
"""So often the table is drawn again although nothing changed: the terminal may have another size."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``status``."""
    parser.add_argument("driver", nargs="?", metavar="DRIVER", help="only this DriverContainer")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="keep the table up to date; without a terminal, a line per change"
    )
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each target; returns 1 if the driver does not exist."""
    if flags.watch and flags.output != "table":
        raise ConfigurationError(f"--watch prints a table: leave out -o {flags.output}")
    client = Client.from_environment(settings.kubeconfig)
    drivers = [
        obj
        for namespace in settings.namespaces
        for obj in client.list(DRIVER_CONTAINERS.path(namespace=namespace)).items
        if flags.driver in (None, obj["metadata"]["name"])
    ]
    if flags.driver is not None and not drivers:
        print(
            f"driver-builder: no DriverContainer {flags.driver!r} in {', '.join(settings.namespaces)}", file=sys.stderr
        )
        return EXIT_FAILED
    if flags.watch:
        return _watch(client, settings.namespaces, flags.driver)
    if flags.output != "table":
        data = [{"metadata": _identity(obj), "status": obj.get("status") or {}} for obj in drivers]
        print(output.document(data, flags.output))
        return EXIT_OK
    rows = [row for obj in drivers for row in _status_rows(obj)]
    headers = ("NAMESPACE", "DRIVER", "VERSION", "KERNEL", "OS", "NODES", "READY", "STATE", "REASON", "MESSAGE")
    reasons = [target["reason"] for obj in drivers for target in _targets(obj) if target["state"] in IN_TROUBLE]
    print(output.with_remedies(output.table(headers, rows), reasons) if rows else "no DriverContainer")
    return EXIT_OK


def _identity(obj: dict[str, Any]) -> dict[str, str]:
    return {field: obj["metadata"][field] for field in ("namespace", "name")}


def _targets(obj: dict[str, Any]) -> list[dict[str, Any]]:
    return (obj.get("status") or {}).get("targets") or []


def _status_rows(obj: dict[str, Any]) -> list[tuple[object, ...]]:
    status = obj.get("status") or {}
    head = (obj["metadata"]["namespace"], obj["metadata"]["name"], obj["spec"]["version"])
    targets = _targets(obj)
    if not targets:
        conditions = {item["type"]: item for item in status.get("conditions") or ()}
        ready = conditions.get("Ready", {"reason": "NotObserved", "message": "driver-builder has not observed it yet"})
        return [(*head, "-", "-", 0, 0, "-", ready["reason"], ready["message"])]
    return [
        (
            *head, target["kernel"], f"{target['os']}/{target['architecture']}", target["nodes"], target["readyNodes"],
            target["state"], target["reason"], target["message"],
        )
        for target in targets
    ]  # fmt: skip


def _watch(client: Client, namespaces: Iterable[str], name: str | None) -> int:
    """Follow the drivers until Ctrl-C; one of the ``name``, if given.

    Raises:
        KubeApiError: they cannot be listed.
    """
    # What it says of broken watches is said in the table.
    logging.getLogger(follower.__name__).setLevel(logging.WARNING)
    followers = [
        Follower(client, Source(resource=DRIVER_CONTAINERS, namespace=namespace), partial(_kept, name))
        for namespace in dict.fromkeys(namespaces)
    ]
    for item in followers:
        item.repair()
    stop, wake = threading.Event(), threading.Event()
    for item in followers:
        threading.Thread(target=item.run, args=(stop, wake.set), name=item.name, daemon=True).start()
    screen, note = _Screen(), ""
    try:
        while True:
            drivers = [obj for item in followers for obj in item.collection.values()]
            views = [rollout_view.parse(obj) for obj in sorted(drivers, key=_place)]
            screen.show(views, note)
            if wake.wait(TURN_SECONDS):
                stop.wait(SETTLE_SECONDS)
                wake.clear()
            note = _repaired(followers)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        stop.set()


def _kept(name: str | None, obj: Json) -> Json | None:
    """Keep what is shown of a driver; None for another one."""
    metadata = obj["metadata"]
    if name not in (None, metadata["name"]):
        return None
    fields = ("namespace", "name", "generation", "annotations")
    version = (obj.get("spec") or {}).get("version", "?")
    return {
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "spec": {"version": version},
        "status": obj.get("status") or {},
    }


def _place(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _repaired(followers: Iterable[Follower[Json]]) -> str:
    """List what watches do not keep up to date; returns why that is not possible."""
    try:
        for item in followers:
            item.repair()
    except KubeApiError as error:
        why = "the API server does not respond" if isinstance(error, Unreachable) else error
        return printable(f"not up to date: {why}")
    return ""


class _Screen:
    """Shows drivers: in place on a terminal, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._lines = output.InPlace()
        self._drawn: tuple[object, ...] = ()
        self._rows: dict[status_view.Row, status_view.Row] | None = None
        self._widths: tuple[int, ...] = status_view.ROW_WIDTHS

    def show(self, views: list[RolloutView], note: str) -> None:
        """Show how they are now; a log has no use for the ``note``, of which a terminal shows the last one."""
        if self._is_terminal:
            self._draw(views, note)
        else:
            self._print(views)

    def _draw(self, views: list[RolloutView], note: str) -> None:
        columns, height = shutil.get_terminal_size()
        lines = status_view.live_lines(views, bars=output.bars(), columns=columns, height=height, note=note)
        drawn = (lines, columns, height)
        if drawn != self._drawn:
            self._lines.draw(lines)
            self._drawn = drawn

    def _print(self, views: list[RolloutView]) -> None:
        rows = status_view.rows_of(views)
        news = status_view.changed_rows(self._rows or {}, rows)
        if self._rows is None:
            news.insert(0, status_view.ROW_HEADERS)
        self._rows = rows
        self._widths = status_view.widths_of(news, self._widths)
        for row in news:
            print(status_view.joined(row, self._widths), flush=True)
