"""The command ``build``: makes the images that a controller would make, without a cluster.

The same resolver, builder, verification, signing and push as in a controller; sources, certificates, keys and passwords
come from files, and the images go to a registry or into a folder.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from driver_builder import config
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.build_logs import Redactor, secrets_of
from driver_builder.builds.own_disk import own_disk
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.checks.lint_files import read_text
from driver_builder.cli import common, output
from driver_builder.cli.builder_choice import engine_builder, make_image, secret_values
from driver_builder.cli.common import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TRY_AGAIN, add_output_flag
from driver_builder.cli.offline import docker_passwords, given_files, offline_cluster
from driver_builder.cli.offline.given_files import Given
from driver_builder.cli.offline.layout_registries import LayoutRegistries
from driver_builder.cli.offline.offline_cluster import OfflineCluster
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.config import Settings
from driver_builder.model.build import BuildRequest
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.setting import Group
from driver_builder.nodes.changes import StartBuild
from driver_builder.prebuild.kernel_list import parse_kernels
from driver_builder.prebuild.preflight import Preflight, PreflightResult, Success, parse_target, unchecked
from driver_builder.registry.oci_layout import opened_layout
from driver_builder.registry.registry_access import Accounts, Registries
from driver_builder.targets.desired_target import PrebuiltTarget

_HEADERS = ("DRIVER", "KERNEL", "VERDICT", "REASON", "SECONDS", "IMAGE")
_TAIL, _SHOWN = 20, 5
"""Lines of a log, and kernels of one kind, that are printed."""
MAX_ALIKE = 3
"""So many results in a row that fail for one reason of what builds share end the command."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``build``."""
    given_files.add_flags(parser)
    kernels = parser.add_mutually_exclusive_group(required=True)
    kernels.add_argument("--kernel", metavar="RELEASE,...", help="kernel releases, as uname -r prints them")
    kernels.add_argument(
        "--kernels", metavar="LIST", help="file with a kernel release per line, or list.json of kernel-crawler"
    )
    parser.add_argument("--os", required=True, metavar="ID:VERSION", help="as in os-release, such as debian:12")
    parser.add_argument(
        "--arch", default="amd64", metavar="ARCH", help="architecture, as Kubernetes names it (default amd64)"
    )
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="file of driver-builder snapshot: what the controller of that cluster would build",
    )
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--push", action="store_true", help="push to the registry in spec.image (default: only verify)")
    to.add_argument(
        "--oci-dir", metavar="DIR", type=Path, help="write an OCI image layout, for driver-builder bundle --import"
    )
    parser.add_argument(
        "--toolchains",
        action="store_const",
        const="true",
        help="also keep compiler and headers of each kernel as an image, and build from those that the registry has"
        " (never with --templates)",
    )
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="passwords of registries, for drivers whose Secret is in no file"
        " (default: config.json in DOCKER_CONFIG, else in ~/.docker)",
    )
    config.add_flags(parser, Group.ENGINE, Group.PERMISSIONS)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Build every driver for every kernel, and print what became of it.

    Raises:
        ConfigurationError: the files, kernels or settings are wrong, and nothing is built.
    """
    if len(settings.namespaces) != 1:
        raise ConfigurationError("--namespace: name one; the others stand in the files")
    given = given_files.read(flags, settings.namespaces[0])
    targets = _targets(flags)
    cluster = _cluster(flags, settings, given)
    choose, remark = docker_passwords.accounts(settings.registry_config, given.objects)
    if remark:
        print(f"driver-builder: {remark}", file=sys.stderr)
    results: list[PreflightResult] = []
    code = None
    with _registries(flags, settings, given, choose) as registries:
        workshop = _Workshop(flags, settings, given, registries)
        try:
            for result in _results(cluster, cluster.drivers(given.drivers), targets, workshop):
                results.append(result)
                workshop.done(result)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        finally:
            output.progress("")
    _print(results, flags)
    return exit_code(results) if code is None else code


def exit_code(results: Sequence[PreflightResult]) -> int:
    """Return 0 when every driver is well on every kernel, 3 when running again may help, else 1. Pure."""
    if all(result.is_ok for result in results):
        return EXIT_OK
    return EXIT_TRY_AGAIN if any(result.is_temporary for result in results) else EXIT_FAILED


def _targets(flags: argparse.Namespace) -> list[KernelTarget]:
    if flags.kernel is not None:
        kernels = tuple(dict.fromkeys(word for word in (part.strip() for part in flags.kernel.split(",")) if word))
        flag = "--kernel"
    else:
        os_id, _, os_version = flags.os.partition(":")
        flag = f"--kernels {flags.kernels}"
        text = read_text(Path(flags.kernels))
        try:
            kernels = parse_kernels(text, os_id=os_id, os_version=os_version, architecture=flags.arch)
        except ConfigurationError as error:
            raise ConfigurationError(f"{flag}: {error}") from error
    if not kernels:
        raise ConfigurationError(f"{flag}: there is no kernel in it")
    return [parse_target(kernel=kernel, os=flags.os, architecture=flags.arch) for kernel in kernels]


def _cluster(flags: argparse.Namespace, settings: Settings, given: Given) -> OfflineCluster:
    own = common.plan_settings(settings).template_versions
    files = offline_cluster.of_files(given.drivers, DriverInputs(given.objects), own)
    if flags.snapshot is None:
        return files
    known, as_it_was = common.read_snapshot(flags.snapshot)
    applied = common.with_permissions(as_it_was, settings)
    return offline_cluster.of_snapshot(files, known, as_it_was.template_versions, applied.template_versions)


@contextmanager
def _registries(
    flags: argparse.Namespace, settings: Settings, given: Given, accounts: Accounts
) -> Iterator[Registries]:
    """Give where images are looked for and go to."""
    options = common.registry_options(settings, local=True)
    if flags.oci_dir is None:
        yield Registries(given.objects, accounts=accounts, **options)
        return
    with opened_layout(flags.oci_dir) as layout:
        yield LayoutRegistries(layout, given.objects, accounts=accounts, **options)


def _results(
    cluster: OfflineCluster,
    drivers: Sequence[DriverContainer],
    targets: Sequence[KernelTarget],
    workshop: "_Workshop",
) -> Iterator[PreflightResult]:
    """Check one driver after the other on each kernel; builds that fail alike for what they share end it."""
    pairs = [(driver, target) for driver in drivers for target in targets]
    workshop.total = len(pairs)
    alike: list[str] = []
    for number, (driver, target) in enumerate(pairs):
        result = _result(cluster, driver, target, workshop)
        yield result
        alike = [*alike, result.reason] if result.is_temporary and result.reason in alike[-1:] else [result.reason]
        if len(alike) == MAX_ALIKE and result.is_temporary:
            words = f"not tried: {MAX_ALIKE} in a row have failed with {result.reason}"
            for other, kernel in pairs[number + 1 :]:
                yield unchecked(other.key, kernel.kernel_version).bad(result.reason, words)
            return


def _result(
    cluster: OfflineCluster, driver: DriverContainer, target: KernelTarget, workshop: "_Workshop"
) -> PreflightResult:
    preflight = Preflight(
        snapshot=cluster.snapshot,
        target=target,
        template_versions=cluster.versions,
        registries=workshop.registries,
        build=workshop.build,
        clock=time.monotonic,
    )
    if not isinstance(driver.spec, DriverSpec):
        return preflight.check(driver)
    item = cluster.item(driver, driver.spec, target)
    if isinstance(item, PrebuiltTarget) and workshop.has_layout:
        words = f"{item.image} is not built here; driver-builder bundle copies it"
        return unchecked(driver.key, target.kernel_version).well(Success.NOT_WANTED, words, image=str(item.image))
    notes = cluster.notes(driver, target, item)
    return workshop.redacted(replace(preflight.check_item(driver, driver.spec, item), notes=notes))


@dataclass
class _Workshop:
    """Builds, and shows what is being built: a bar on a terminal, a line for each result elsewhere."""

    flags: argparse.Namespace
    settings: Settings
    given: Given
    registries: Registries
    redact: Redactor = field(default_factory=Redactor)
    total: int = 0
    finished: int = 0

    @property
    def has_layout(self) -> bool:
        """Whether images go into a folder."""
        return self.flags.oci_dir is not None

    def build(self, action: StartBuild) -> str:
        """Build, verify, and push where that is asked for; returns the digest of what was pushed, else nothing."""
        if action.build_secrets:
            raise ConfigurationError(
                "spec.build.secrets are mounted by builds in Jobs, which need a cluster: use driver-builder preflight"
            )
        secrets = SigningSecrets(self.given.objects)
        known = self.registries.credentials(action.namespace, action.registry, action.image.host)
        self.redact.add((*secrets_of(known.values()), *secrets.texts(action.namespace, action.request)))
        self.redact.add(secret_values(action, self.given.objects))
        with own_disk(), engine_builder(action, self.settings, self.registries, self.given.objects) as builder:
            return make_image(
                action,
                builder=builder,
                registries=self.registries,
                secrets=secrets,
                log=partial(self._show, action.request),
                is_kept=self.flags.push or self.has_layout,
                # An engine pulls from registries only.
                use_toolchain=self.settings.toolchains and not self.has_layout,
                keeps_toolchain=self.settings.toolchains,
                redact=self.redact,
            )

    def redacted(self, result: PreflightResult) -> PreflightResult:
        """Return a result without secrets."""
        log_tail = tuple(map(self.redact, result.log_tail))
        return replace(result, message=self.redact(result.message), log_tail=log_tail)

    def done(self, result: PreflightResult) -> None:
        """Count a result."""
        self.finished += 1
        if sys.stderr.isatty():
            output.progress(self._bar())
            return
        words = f"{result.verdict}{f' ({result.reason})' if result.reason else ''}"
        print(
            f"{self.finished}/{self.total} {result.check} {result.kernel}: {words}, {result.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    def _show(self, request: BuildRequest, line: str) -> None:
        output.progress(f"{self._bar()}  {request.driver} {request.target.kernel_version}: {self.redact(line)}")

    def _bar(self) -> str:
        return output.counted(self.finished, self.total, output.bars(sys.stderr))


def _print(results: Sequence[PreflightResult], flags: argparse.Namespace) -> None:
    if flags.output != "table":
        print(output.document([result.fields() for result in results], flags.output))
        return
    for result in results:
        for line in result.log_tail[-_TAIL:]:
            print(f"{result.check} {result.kernel}: {line}", file=sys.stderr)
    rows = [
        (
            item.check, item.kernel, item.verdict, item.reason or "-", f"{item.seconds:.0f}",
            item.image if item.is_ok and item.image else "-",
        )
        for item in results
    ]  # fmt: skip
    print(output.table(_HEADERS, rows))
    for lines in (_notes(results), [*summary(results), _where(flags)]):
        if lines:
            print("\n" + "\n".join(lines))


def _where(flags: argparse.Namespace) -> str:
    if flags.oci_dir is not None:
        return f"images are in {flags.oci_dir}; push them with driver-builder bundle {flags.oci_dir} --import"
    return "images are in the registry" if flags.push else "nothing is kept; give --push or --oci-dir to keep images"


def _notes(results: Iterable[PreflightResult]) -> list[str]:
    """Each note once, with the kernels that it is about."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for note in result.notes:
            found.setdefault((result.check, note), []).append(result.kernel)
    return [f"note: {driver} ({_listed(kernels)}): {note}" for (driver, note), kernels in found.items()]


def summary(results: Sequence[PreflightResult]) -> list[str]:
    """Say which kernels have no driver, and why: those that fail alike together. Pure."""
    lines = []
    for driver in dict.fromkeys(result.check for result in results):
        own = [result for result in results if result.check == driver]
        without = [result for result in own if not result.has_driver]
        lines.append(f"{driver}: {len(own) - len(without)} of {len(own)} kernels have a driver")
        for kind in dict.fromkeys(map(_kind, without)):
            alike = [result for result in without if _kind(result) == kind]
            first = alike[0]
            words = " ".join(filter(None, (first.verdict, first.reason)))
            lines.append(f"  {words}: {_listed([result.kernel for result in alike])}")
            lines.append(f"    {first.message}")
            remedy = "run the command again" if first.is_temporary else first.remedy
            lines += [f"    next: {remedy}"] if remedy else []
    return lines


def _kind(result: PreflightResult) -> tuple[str, str, str]:
    """What results that fail alike have in common: the message, but for the kernel in it."""
    return result.verdict, result.reason, result.message.replace(result.kernel, "")


def _listed(kernels: Sequence[str]) -> str:
    shown = ", ".join(kernels[:_SHOWN])
    return shown if len(kernels) <= _SHOWN else f"{shown} and {len(kernels) - _SHOWN} others"
