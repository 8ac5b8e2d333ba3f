"""The command line: flags, logging and exit codes. The only module that may end the process.

Each command is a module with ``add_flags`` and ``run``.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from driver_builder import config
from driver_builder.base.errors import ConfigurationError, DriverBuilderError
from driver_builder.cli.commands import (
    build_command,
    build_logs_command,
    bundle_command,
    convert_command,
    doctor_command,
    explain_command,
    gate_command,
    gc_command,
    lint_command,
    plan_command,
    policy_command,
    preflight_command,
    rollout_command,
    run_command,
    snapshot_command,
    status_command,
    upload_command,
)
from driver_builder.cli.common import EXIT_FAILED, EXIT_USAGE, own_version
from driver_builder.config import Settings
from driver_builder.model.setting import Group
from kube_api.errors import KubeApiError
from kube_api.log_lines import set_up

logger = logging.getLogger(__name__)


class Command(Protocol):
    """A module that is a command."""

    def add_flags(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the command's own flags."""

    def run(self, flags: argparse.Namespace, settings: Settings, /) -> int:
        """Do it; returns the exit code."""


COMMANDS: tuple[tuple[str, Command, str], ...] = (
    ("run", run_command, "run the controller until it is stopped"),
    ("status", status_command, "show every driver and the state of its targets"),
    ("rollout", rollout_command, "show how far the rollout of a driver is, pause it, resume it"),
    ("explain", explain_command, "explain why a driver is or is not ready on a node, and what to do next"),
    ("doctor", doctor_command, "check that everything is in place for drivers, and pack what a bug report needs"),
    ("logs", build_logs_command, "print the logs of a driver's failed builds"),
    (
        "gate",
        gate_command,
        "check that a node may boot another kernel: every driver that selects it is built for that kernel",
    ),
    ("plan", plan_command, "show what the controller would do next, without doing it"),
    ("lint", lint_command, "find errors in DriverContainers before they are applied; needs no cluster"),
    (
        "convert",
        convert_command,
        "convert another operator's objects to DriverContainers, and name what has no counterpart; needs no cluster",
    ),
    (
        "preflight",
        preflight_command,
        "build and verify drivers for a kernel that no node runs yet, without rolling them out",
    ),
    (
        "build",
        build_command,
        "build, verify, sign and push the images that a controller would, for a list of kernels; needs no cluster",
    ),
    (
        "bundle",
        bundle_command,
        "copy images into a folder for a registry without a way out, and push them there with --import; needs no"
        " cluster",
    ),
    (
        "gc",
        gc_command,
        "show driver images in registries that nothing has needed for long, and remove them with --delete",
    ),
    ("snapshot", snapshot_command, "write everything that a plan is computed from, for --snapshot"),
    (
        "admission-policy",
        policy_command,
        "print an admission policy that limits what the controller may change of Nodes; needs no cluster",
    ),
)
"""In the order of the help. Every one takes the flags of the connection as well."""

INTERNAL: tuple[tuple[str, Command, str], ...] = (
    ("hand-over", upload_command, "upload a build's output to the registry; the second container of a build Job"),
)
"""Commands that our own pods run: the help does not list them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 wrong usage or settings."""
    parser = _parser()
    flags = parser.parse_args(argv)
    try:
        settings = config.settings(flags)
        form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        set_up(settings.log_level, settings.log_format, form)
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        for words in config.warnings(flags):
            logger.warning("%s", words)
        code: int = flags.command(flags, settings)
    except ConfigurationError as error:
        print(f"driver-builder: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (DriverBuilderError, KubeApiError) as error:
        print(f"driver-builder: {error}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="driver-builder",
        description="Keeps a driver image built, verified and rolled out for every kernel the nodes run.",
        epilog="Every flag has an environment variable: DRIVER_BUILDER_ and the flag's name in upper case.",
    )
    parser.add_argument("--version", action="version", version=f"driver-builder {own_version()}")
    config.add_flags(parser, Group.LOGS)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module, text in COMMANDS:
        _command(commands, name, module, text, help=text)
    for name, module, text in INTERNAL:
        _command(commands, name, module, text)
    return parser


def _command(commands: Any, name: str, module: Command, text: str, **listed: str) -> None:
    parser = commands.add_parser(name, description=text[0].upper() + text[1:] + ".", **listed)
    config.add_flags(parser, Group.CONNECTION)
    module.add_flags(parser)
    parser.set_defaults(command=module.run)
