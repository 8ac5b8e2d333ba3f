"""The command ``preflight``: builds and verifies drivers for a kernel before any node boots it."""

import argparse
import sys
import time
from functools import partial

from driver_builder import config
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.cli import common, output
from driver_builder.cli.builder_choice import builder_for, make_image
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.config import Settings
from driver_builder.model.setting import Group
from driver_builder.nodes.changes import StartBuild
from driver_builder.prebuild.preflight import Preflight, PreflightResult, parse_target
from driver_builder.registry.registry_access import Registries
from kube_api.client import Client

_HEADERS = ("DRIVER", "KERNEL", "VERDICT", "REASON", "SECONDS", "MESSAGE")
_TAIL = 20


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``preflight``."""
    parser.add_argument("driver", nargs="*", metavar="DRIVER", help="only these DriverContainers (default: all)")
    parser.add_argument("--kernel", required=True, metavar="RELEASE", help="kernel release, as uname -r prints it")
    parser.add_argument("--os", required=True, metavar="ID:VERSION", help="as in os-release, such as debian:12")
    parser.add_argument(
        "--arch", default="amd64", metavar="ARCH", help="architecture, as Kubernetes names it (default amd64)"
    )
    parser.add_argument("--push", action="store_true", help="push verified images to the registry")
    config.add_flags(parser, Group.BUILDER, Group.ENGINE, Group.PERMISSIONS)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print the result of each driver for the kernel; returns 0 if all are well, else 1."""
    target = parse_target(kernel=flags.kernel, os=flags.os, architecture=flags.arch)
    snapshot = common.observe(settings)
    drivers = [driver for name in flags.driver or [None] for driver in common.find_drivers(snapshot, name)]
    registries = common.registries(settings, Client.from_environment(settings.kubeconfig))
    preflight = Preflight(
        snapshot=snapshot,
        target=target,
        template_versions=common.plan_settings(settings).template_versions,
        registries=registries,
        build=partial(_build, settings, registries, push=flags.push),
        clock=time.monotonic,
    )
    results = [preflight.check(driver) for driver in drivers]
    _tell(results, flags.output)
    return EXIT_OK if results and all(result.is_ok for result in results) else EXIT_FAILED


def _build(settings: Settings, registries: Registries, action: StartBuild, *, push: bool) -> str:
    log = partial(_progress, action.request.driver)
    client = Client.from_environment(settings.kubeconfig)
    secrets = SigningSecrets(client)
    with builder_for(action, settings, client=client, registries=registries) as builder:
        try:
            return make_image(
                action,
                builder=builder,
                registries=registries,
                secrets=secrets,
                log=log,
                is_kept=push,
                use_toolchain=settings.toolchains,
                keeps_toolchain=settings.toolchains,
            )
        finally:
            _progress("", "")


def _progress(driver: str, line: str) -> None:
    """Show the last line of a running build."""
    output.progress(f"{driver}: {line}" if driver else "")


def _tell(results: list[PreflightResult], form: str) -> None:
    if form != "table":
        print(output.document([result.fields() for result in results], form))
        return
    for result in results:
        for line in result.log_tail[-_TAIL:]:
            print(f"{result.check}: {line}", file=sys.stderr)
    rows = [
        (item.check, item.kernel, item.verdict, item.reason or "-", f"{item.seconds:.0f}", item.message)
        for item in results
    ]
    reasons = [item.reason for item in results if not item.is_ok]
    print(output.with_remedies(output.table(_HEADERS, rows), reasons) if rows else "no DriverContainer")
