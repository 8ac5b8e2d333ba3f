"""``driver-builder logs DRIVER [KERNEL]``: prints the logs that :mod:`driver_builder.builds.build_logs` keeps."""

import argparse
import base64
import sys
from collections.abc import Iterable
from typing import Any

from driver_builder.builds.bounded_log import unpacked
from driver_builder.builds.build_logs import (
    KEY_ANNOTATION,
    LOG_FILE,
    LOG_LABEL,
    REASON_ANNOTATION,
    WHOLE_LOG_FILE,
    failed_at,
    owner_name,
)
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK
from driver_builder.config import Settings
from driver_builder.objects.manifests import KERNEL_ANNOTATION
from kube_api.client import Client
from kube_api.resources import CONFIG_MAPS

Json = dict[str, Any]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("driver", metavar="DRIVER", help="name of the DriverContainer")
    parser.add_argument("--all", action="store_true", help="print the whole log, not only its last 200 lines")
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="only this kernel release (uname -r)")


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print each kept log of a driver, the newest last; returns 1 when none exists.

    Raises:
        KubeApiError: when the logs cannot be read.
    """
    client = Client.from_environment(settings.kubeconfig)
    found = [
        log
        for namespace in settings.namespaces
        for log in client.list(CONFIG_MAPS.path(namespace=namespace), label_selector=LOG_LABEL).items
    ]
    logs = select(found, driver=flags.driver, kernel=flags.kernel)
    if not logs:
        kernel = f" on kernel {flags.kernel}" if flags.kernel else ""
        print(
            f"driver-builder: no log of a failed build of {flags.driver}{kernel} in {', '.join(settings.namespaces)};"
            " see what has failed with: driver-builder status",
            file=sys.stderr,
        )
        return EXIT_FAILED
    print("\n".join(render(log, whole=flags.all) for log in logs), end="")
    return EXIT_OK


def select(logs: Iterable[Json], *, driver: str, kernel: str | None) -> list[Json]:
    """Pick the logs of a driver, and of a kernel release if one is given, the newest last."""
    mine = (log for log in logs if owner_name(log) == driver)
    return sorted((log for log in mine if kernel in (None, _annotation(log, KERNEL_ANNOTATION))), key=failed_at)


def render(log: Json, *, whole: bool = False) -> str:
    """Write a log, or its last lines, below a line that says what it is of."""
    kernel, reason = _annotation(log, KERNEL_ANNOTATION), _annotation(log, REASON_ANNOTATION)
    driver = f"{log['metadata']['namespace']}/{owner_name(log)}"
    head = f"==> {driver} on {kernel}: {reason} at {failed_at(log)} (build {_annotation(log, KEY_ANNOTATION)}) <=="
    packed = (log.get("binaryData") or {}).get(WHOLE_LOG_FILE) if whole else None
    text = unpacked(base64.b64decode(packed)) if packed else (log.get("data") or {}).get(LOG_FILE, "")
    return f"{head}\n{text}"


def _annotation(log: Json, name: str) -> str:
    return str((log["metadata"].get("annotations") or {}).get(name, ""))
