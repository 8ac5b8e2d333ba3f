"""The command ``doctor``: is everything in place for drivers; and one archive of what a bug report needs."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from driver_builder import config
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.check_result import CheckResult, Status, has_failed, summary
from driver_builder.base.errors import ConfigurationError
from driver_builder.checks import report_archive as report
from driver_builder.checks.check_registries import RegistryPlace
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.cli.examination.collect import ReportCollector
from driver_builder.cli.examination.examine import QUICK_SECONDS, Examination, Options
from driver_builder.config import Settings
from driver_builder.model.images import ImageRepository, parse_reference, wrong_registry
from driver_builder.model.setting import Group
from kube_api.client import Client
from kube_api.node_policy import parse_account
from kube_api.text import printable

_COLOURS = {Status.OK: "32", Status.WARNING: "33", Status.FAILED: "1;31", Status.UNKNOWN: "36"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``doctor``."""
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a .tar.gz for a bug report, without Secrets")
    parser.add_argument(
        "--service-account",
        metavar="NAMESPACE/NAME",
        help="whose permissions are checked (default: the account of the controller's Deployment)",
    )
    parser.add_argument(
        "--registry", metavar="HOST/REPOSITORY", help="check this registry, before a DriverContainer names it"
    )
    parser.add_argument("--registry-secret", metavar="NAME", help="Secret with its password, in the first namespace")
    parser.add_argument(
        "--registry-plain-http", action="store_true", help="--registry has no TLS, as spec.registry.plainHttp"
    )
    config.add_flags(parser, Group.BUILDER, Group.ENGINE, Group.PERMISSIONS)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print each check as it is made; returns 0 if nothing has failed, else 1."""
    options = _options(flags, settings)
    if flags.report is not None and not flags.report.absolute().parent.is_dir():
        raise ConfigurationError(f"--report {flags.report}: there is no folder {flags.report.absolute().parent}")
    examination = Examination(
        Client.from_environment(settings.kubeconfig),
        options,
        progress=lambda words: output.progress(f"checking {words}"),
        quick=Client.from_environment(settings.kubeconfig, timeout_seconds=QUICK_SECONDS),
    )
    findings: list[CheckResult] = []
    for finding in examination.findings():
        findings.append(finding)
        if flags.output == "table":
            output.progress("")
            print(_text(finding), flush=True)
    output.progress("")
    if flags.output == "table":
        print(f"\n{summary(findings)}")
    else:
        print(output.document({"findings": [item.as_document(report.NAMES) for item in findings]}, flags.output))
    if flags.report is not None:
        _write_report(flags.report, examination, findings)
    return EXIT_FAILED if has_failed(findings) else EXIT_OK


def _options(flags: argparse.Namespace, settings: Settings) -> Options:
    """Read the flags.

    Raises:
        ConfigurationError: one is not of its form.
    """
    account = parse_account(flags.service_account) if flags.service_account else None
    if flags.service_account and account is None:
        raise ConfigurationError(f"--service-account: {flags.service_account!r} is not of the form NAMESPACE/NAME")
    if (flags.registry_secret or flags.registry_plain_http) and not flags.registry:
        raise ConfigurationError("--registry-secret and --registry-plain-http belong to --registry: name that as well")
    return Options(
        own=settings,
        namespaces=tuple(flags.namespace or ()),
        place=_place(flags, settings) if flags.registry else None,
        account=account,
    )


def _place(flags: argparse.Namespace, settings: Settings) -> RegistryPlace:
    try:
        image = parse_reference(f"{flags.registry}:latest")
    except ValueError as error:
        raise ConfigurationError(f"--registry: {printable(flags.registry)!r} is not HOST/REPOSITORY") from error
    if words := wrong_registry(flags.registry):
        raise ConfigurationError(f"--registry: {printable(flags.registry)!r} {words}")
    return RegistryPlace(
        namespace=settings.namespaces[0],
        repository=ImageRepository(host=image.host, repository=image.repository),
        settings=RegistrySettings(secret=flags.registry_secret, plain_http=flags.registry_plain_http),
    )


def _text(finding: CheckResult) -> str:
    """Write a finding for a terminal, or for a file."""
    is_terminal = sys.stdout.isatty()
    head, *rest = report.lines(finding, shutil.get_terminal_size().columns if is_terminal else 0)
    if is_terminal and not os.environ.get("NO_COLOR"):
        word = finding.status.value
        head = f"\x1b[{_COLOURS[finding.status]}m{word}\x1b[0m{head.removeprefix(word)}"
    return "\n".join([head, *rest])


def _write_report(path: Path, examination: Examination, findings: Iterable[CheckResult]) -> None:
    """Write the archive, whole or not at all, for its owner alone."""
    collection = ReportCollector(examination, progress=lambda words: output.progress(f"collecting {words}"))
    files = tuple(collection.files(tuple(findings)))
    content = report.archive(files, collection.unread, version=common.own_version(), now=time.time())
    output.progress("")
    try:
        # Readable by its owner alone from the begin on.
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(content)
    except OSError as error:
        raise ConfigurationError(f"--report {path}: {error}") from error
    try:
        Path(file.name).replace(path)
    except OSError as error:
        Path(file.name).unlink(missing_ok=True)
        raise ConfigurationError(f"--report {path}: {error}") from error
    words = f"report: {path}, {len(files) + 1} files, {len(content) >> 10} KiB"
    print(
        words + (f"; {len(collection.unread)} could not be read (README.txt)" if collection.unread else ""),
        file=sys.stderr,
    )
