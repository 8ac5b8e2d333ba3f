"""What the commands share: exit codes, the flag for the output format, and the snapshot that they read."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.templates import templates
from driver_builder.cli import output
from driver_builder.cluster import snapshot_file
from driver_builder.cluster.observe import Observer
from driver_builder.cluster.recorder import Recorder
from driver_builder.config import Settings
from driver_builder.controller.read_images import ImageReader
from driver_builder.model import defaults
from driver_builder.model.permissions import read as read_permissions
from driver_builder.nodes.plan_view import DEFAULT_LOADER_IMAGE, PlanSettings
from driver_builder.registry.registry_access import Registries
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from kube_api.client import Client, Collections

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_TRY_AGAIN = 3
"""What failed was not what was asked for, but what it needs: an engine, a registry, a disk."""
EXIT_INTERRUPTED = 130
"""What a shell returns for a command that Ctrl-C ended."""


def own_version() -> str:
    """Return the version of this program."""
    return version("driverwright")


def add_output_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", choices=output.FORMATS, default="table", help="output format (default table)")


def add_snapshot_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--snapshot``."""
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="read a file of driver-builder snapshot, - for stdin, instead of the cluster",
    )


def seen(flags: argparse.Namespace, settings: Settings) -> tuple[Snapshot, PlanSettings]:
    """Return the snapshot that a command reads, and the settings of its plan: from the file, or of this cluster now.

    Raises:
        ConfigurationError: the file cannot be read; the message names it.
    """
    if flags.snapshot is None:
        return observe(settings), plan_settings(settings)
    snapshot, known = read_snapshot(flags.snapshot)
    for driver in snapshot_file.with_hidden_values(snapshot):
        words = "the file has no values of environment variables: pods with an image's own program look outdated"
        print(f"{driver}: {words}", file=sys.stderr)
    return snapshot, with_permissions(known, settings)


def read_snapshot(file: str) -> tuple[Snapshot, PlanSettings]:
    """Read a file of ``driver-builder snapshot``, or standard input by the name of ``-``.

    Raises:
        ConfigurationError: it cannot be read; the message names it.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return snapshot_file.from_document(parse(text))
    except (OSError, ValueError, OverflowError, RecursionError, yaml.YAMLError, ConfigurationError) as error:
        raise ConfigurationError(f"--snapshot {file}: {error}") from error


def parse(text: str) -> Any:
    """Read JSON or YAML; JSON by its own parser, which is a hundred times faster.

    Raises:
        yaml.YAMLError: it is neither.
    """
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def with_permissions(known: PlanSettings, settings: Settings) -> PlanSettings:
    """Replace those permissions in a file that are set for this command; the file's others stay."""
    versions = known.template_versions
    permissions = read_permissions(settings.permission_texts, versions.permissions)
    return replace(known, template_versions=replace(versions, permissions=permissions))


def plan_settings(settings: Settings) -> PlanSettings:
    """Return what a plan depends on besides the snapshot, with the settings of this process."""
    deadline, most = settings.build_deadline_seconds, settings.max_build_deadline_seconds
    # Who sets a longer default than the maximum wants it; who sets a shorter maximum than our default wants that.
    is_own_default = deadline == defaults.BUILD_DEADLINE_SECONDS
    versions = TemplateVersions(
        versions=templates.template_versions(settings.templates),
        deadline_seconds=min(deadline, most) if is_own_default else deadline,
        max_deadline_seconds=most if is_own_default else max(deadline, most),
        permissions=settings.permissions,
    )
    as_given = {
        item.name: getattr(settings, item.name) for item in fields(PlanSettings) if hasattr(settings, item.name)
    }
    own = {
        "template_versions": versions,
        "loader_image": settings.loader_image or DEFAULT_LOADER_IMAGE,
        "retry_min_seconds": settings.waits.retry_min,
        "retry_max_seconds": settings.waits.retry_max,
    }
    return PlanSettings(**as_given | own)


def observe(settings: Settings, change: Callable[[Snapshot], Snapshot] = lambda seen: seen) -> Snapshot:
    """Read the cluster, and ask the registries for the images that it wants; ``change`` modifies the snapshot first."""
    client = Client.from_environment(settings.kubeconfig)
    return _observe(settings, client, client, change)


def document(settings: Settings) -> dict[str, Any]:
    """Make the document of a snapshot of the cluster."""
    client = Client.from_environment(settings.kubeconfig)
    recorder = Recorder(client)
    taken = _observe(settings, client, recorder)
    return snapshot_file.to_document(
        recorder,
        taken,
        plan_settings(settings),
        namespaces=settings.namespaces,
        writer=f"driver-builder {own_version()}",
    )


def _observe(
    settings: Settings,
    client: Client,
    source: Collections,
    change: Callable[[Snapshot], Snapshot] = lambda seen: seen,
) -> Snapshot:
    decides = plan_settings(settings)
    images = ImageReader(registries(settings, client), decides.template_versions)
    observer = Observer(
        source,
        namespaces=settings.namespaces,
        clock=time.time,
        accounts=decides.plugin_accounts,
        agent_drains=settings.agent_drains,
    )
    return images.read(change(observer.observe()))


def registries(settings: Settings, client: Client, *, account_seconds: float = 0.0) -> Registries:
    """Make the registry client of all drivers; ``account_seconds`` is how long a Secret is cached."""
    return Registries(client, account_seconds=account_seconds, **registry_options(settings))


def registry_options(settings: Settings, *, local: bool = False) -> dict[str, Any]:
    """Return how registries are connected to; ``local``: by a command whose files are those of who runs it."""
    return {
        "ca_file": settings.registry_ca_file,
        "reach": replace(settings.registry_reach, local=local),
        "plain_http_passwords": settings.registry_plain_http_passwords,
    }


def find_node(snapshot: Snapshot, name: str) -> Node:
    """Return the node of a name.

    Raises:
        ConfigurationError: there is no such node.
    """
    found = next((node for node in snapshot.nodes if node.name == name), None)
    if found is None:
        known = ", ".join(sorted(node.name for node in snapshot.nodes)[:10]) or "none"
        raise ConfigurationError(f"NODE: there is no node {name!r}; there are: {known}")
    return found


def find_drivers(snapshot: Snapshot, name: str | None) -> tuple[DriverContainer, ...]:
    """Return the drivers of a name, given with or without its namespace; all, in order, without a name.

    Raises:
        ConfigurationError: a name is given and no driver has it.
    """
    drivers = sorted(snapshot.drivers, key=lambda driver: driver.key)
    found = tuple(driver for driver in drivers if name in (None, driver.name, driver.key))
    if name is not None and not found:
        known = ", ".join(driver.key for driver in drivers) or "none"
        unread = "".join(f"; {words}" for words in snapshot.forbidden.values())
        raise ConfigurationError(f"DRIVER: there is no DriverContainer {name!r}; there are: {known}{unread}")
    return found
