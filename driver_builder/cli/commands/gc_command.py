"""The command ``gc``: removes driver images that nobody has needed for long from the registry; a dry run by default."""

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from driver_builder import config
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import ConfigurationError
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.cli.offline.docker_passwords import read_docker_config
from driver_builder.cluster.observe import Observer
from driver_builder.config import Settings
from driver_builder.model.permissions import Permissions
from driver_builder.model.setting import Group
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from driver_builder.retention import record
from driver_builder.retention.decide import Fate, GcResult, Rules, blindness, by_need, by_tags, still_condemned
from driver_builder.retention.needed import Needed, needed
from driver_builder.retention.record import PushedImage, Record
from driver_builder.retention.recorder import record_path
from driver_builder.retention.sweep import Sweep
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from driver_builder.targets.resolve_all import resolve_all
from kube_api.client import Client
from kube_api.errors import NotFound

_HEADERS = ("IMAGE", "DIGEST", "SIZE", "LAST NEEDED", "ACTION", "WHY")
_SHORT_DIGEST = len("sha256:") + 12
_MIB = 1 << 20


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``gc``."""
    parser.add_argument("--delete", action="store_true", help="remove the images (default: only show them)")
    config.add_flags(parser, Group.GC)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print what may be removed and why the rest stays; returns 1 if something could not be read or removed.

    Raises:
        ConfigurationError: nothing says what may be removed.
        KubeApiError: the cluster cannot be read.
    """
    if flags.delete and not settings.gc_repositories:
        raise ConfigurationError(
            "--gc-repositories: name the repositories that only this cluster uses; nothing else is removed"
        )
    client = Client.from_environment(settings.kubeconfig)
    path = record_path(settings.namespaces[0])
    try:
        known = record.parse(client.get(path).get("data") or {})
    except NotFound:
        print(f"driver-builder: {path}: the controller has not recorded any pushed image yet", file=sys.stderr)
        return EXIT_FAILED
    cluster = _Cluster(client, settings, known)
    snapshot, wanted = cluster.look()
    sweep = Sweep(_Connections(client, settings, snapshot).connect, progress=output.progress)
    verdicts = by_need(known, wanted, cluster.rules(snapshot))
    verdicts = by_tags(verdicts, sweep.look(verdicts))
    if flags.delete and any(verdict.is_condemned for verdict in verdicts):
        verdicts = _remove(cluster, sweep, verdicts)
        _forget(client, path, verdicts)
    output.progress("")
    _print(verdicts, flags)
    for host, words in sweep.troubles.items():
        print(f"driver-builder: {host} is not asked any more: {words}", file=sys.stderr)
    return EXIT_FAILED if any(verdict.unseen for verdict in verdicts) else EXIT_OK


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Reads the namespaces of the command and those of the controller that wrote the record."""

    client: Client
    settings: Settings
    record: Record

    def look(self) -> tuple[Snapshot, Needed]:
        """Read the cluster, and find what it needs.

        Raises:
            KubeApiError: when any part of it cannot be read.
        """
        output.progress("reading the cluster")
        namespaces = dict.fromkeys((*self.settings.namespaces, *self.record.namespaces))
        snapshot = Observer(self.client, namespaces=namespaces, clock=time.time).observe()
        versions = self._versions()
        return snapshot, needed(snapshot, resolve_all(snapshot, versions), versions)

    def rules(self, snapshot: Snapshot) -> Rules:
        """Return what decides besides the need."""
        today = record.day_of(snapshot.now)
        return Rules(
            repositories=self.settings.gc_repositories,
            keep_days=self.settings.keep_days,
            today=today,
            blind=blindness(self.record, snapshot.forbidden.values(), today),
        )

    def _versions(self) -> TemplateVersions:
        """Without limits of what drivers may use: what is refused now may be allowed again."""
        return replace(common.plan_settings(self.settings).template_versions, permissions=Permissions())


class _Connections:
    """Connects to registries as the drivers do, or with the passwords of a file."""

    def __init__(self, client: Client, settings: Settings, snapshot: Snapshot) -> None:
        self._specs = {driver.key: driver.spec for driver in snapshot.drivers if isinstance(driver.spec, DriverSpec)}
        accounts = read_docker_config(settings.registry_config)[0] if settings.registry_config else None
        self._registries = Registries(
            client, accounts=lambda _namespace, _settings: accounts, **common.registry_options(settings)
        )

    def connect(self, image: PushedImage) -> RegistryClient:
        """Connect as the spec says now, or as it said when the image was pushed if the driver is gone."""
        spec = self._specs.get(image.driver)
        registry = spec.registry if spec is not None and spec.image.host == image.image.host else image.registry
        return self._registries.connect(image.namespace, registry, image.image.host, image.image.repository)


def _remove(cluster: _Cluster, sweep: Sweep, verdicts: Iterable[GcResult]) -> tuple[GcResult, ...]:
    """Remove what is still not needed."""
    snapshot, wanted = cluster.look()
    verdicts = still_condemned(verdicts, by_need(cluster.record, wanted, cluster.rules(snapshot)))
    protected = wanted.digests | {verdict.image.digest for verdict in verdicts if not verdict.is_condemned}
    return tuple(
        sweep.remove(verdict, protected=protected) if verdict.is_condemned else verdict for verdict in verdicts
    )


def _forget(client: Client, path: str, verdicts: Iterable[GcResult]) -> None:
    """Take what was removed out of the record."""
    gone: dict[str, Any] = {verdict.image.key: None for verdict in verdicts if verdict.fate is Fate.DELETED}
    if gone:
        client.patch(path, {"data": gone})


def _print(verdicts: tuple[GcResult, ...], flags: argparse.Namespace) -> None:
    ordered = sorted(verdicts, key=lambda verdict: (verdict.fate is Fate.KEEP, str(verdict.image.image)))
    if flags.output != "table":
        print(output.document([verdict.as_document() for verdict in ordered], flags.output))
        return
    rows = [
        (
            verdict.image.image, verdict.image.digest[:_SHORT_DIGEST], _mib(verdict.size), verdict.image.last_needed,
            verdict.fate.value, verdict.why,
        )
        for verdict in ordered
    ]  # fmt: skip
    if rows:
        print(f"{output.table(_HEADERS, rows)}\n")
    removed = [verdict for verdict in verdicts if verdict.fate is not Fate.KEEP]
    size = sum(verdict.size or 0 for verdict in removed)
    what = f"{len(removed)} of {len(verdicts)} images, up to {_mib(size)} of layers"
    print(f"removed {what}" if flags.delete else f"dry run: --delete would remove {what}")


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / _MIB:.1f} MiB"
