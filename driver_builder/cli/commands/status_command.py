"""The command ``status``: the state of every driver on every kernel, as its status has it."""

import argparse
import sys
from typing import Any

from driver_builder.cli import output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.config import Settings
from driver_builder.reasons import IN_TROUBLE
from kube_api.client import Client
from kube_api.resources import DRIVER_CONTAINERS


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``status``."""
    parser.add_argument("driver", nargs="?", metavar="DRIVER", help="only this DriverContainer")
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each target; returns 1 if the driver does not exist."""
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
