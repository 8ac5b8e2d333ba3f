"""Settings of driver-builder: flags over environment over defaults, as one frozen value.

Each field of :class:`Settings` has its row in the table beside it: flag, variable, check, help and chart value.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from driver_builder.api.build_settings import BuilderKind
from driver_builder.base.errors import ConfigurationError
from driver_builder.model import defaults, quantities
from driver_builder.model import setting_texts as texts
from driver_builder.model.agent_drains import AgentDrains, resource_patterns
from driver_builder.model.defaults import Waits
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.model.permissions import NOTHING, Permissions, repository_patterns
from driver_builder.model.permissions import SETTINGS as PERMISSIONS
from driver_builder.model.registry_reach import Reach, parse_hosts, parse_networks
from driver_builder.model.setting import RETIRED_SINCE, Group, Setting
from kube_api.log_lines import FORMATS, LEVELS, known_word

Json = dict[str, Any]

DEFAULT_DOCKER_HOST = "unix:///var/run/docker.sock"
RUN = (Group.ENGINE, Group.BUILDER, Group.PERMISSIONS, Group.RUN, Group.NODE_FEATURES)
"""The groups of the controller's flags, besides those of every command."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _own_namespace(environment: Mapping[str, str]) -> str:
    if environment.get("POD_NAMESPACE"):
        return environment["POD_NAMESPACE"]
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "driverwright"


def _docker_cert_path(environment: Mapping[str, str]) -> str:
    """Return where the docker command would look: it uses TLS if the variable is set to anything."""
    if not environment.get("DOCKER_TLS_VERIFY"):
        return ""
    return environment.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")


def _joined(make: Callable[..., Any], *rows: Setting) -> Mapping[str, Any]:
    """Return the metadata of a field whose value is made of those of several rows, by the names of their fields."""
    return MappingProxyType({"rows": rows, "make": make})


def _one(*row: Any, **others: Any) -> Mapping[str, Any]:
    """Return the metadata of a field whose value is that of a row."""
    return _joined(lambda value: value, Setting(*row, field="value", **others))


_logs, _connection, _engine, _builder, _run, _node_features, _gc = (
    partial(_one, group=group)
    for group in (
        Group.LOGS, Group.CONNECTION, Group.ENGINE, Group.BUILDER, Group.RUN, Group.NODE_FEATURES, Group.GC,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a command runs. All durations in seconds."""

    # fmt: off
    # One setting after the other, in the order of the help: exploded, the table would be twice as long.
    log_level: str = field(metadata=_logs(
        "--log-level", texts.choices(LEVELS), "what is logged (default info)",
        lambda text: known_word(text, LEVELS), "info",
    ))
    log_format: str = field(metadata=_logs(
        "--log-format", texts.choices(FORMATS), "how it is logged (default text)",
        lambda text: known_word(text, FORMATS), "text",
    ))

    kubeconfig: str | None = field(metadata=_connection(
        "--kubeconfig", "FILE", "kubeconfig to use instead of the pod's service account", texts.optional,
    ))
    """None: the pod's service account, else kubectl's default."""
    namespaces: tuple[str, ...] = field(metadata=_connection(
        "--namespace", "NAME",
        "namespace of the DriverContainers; may be repeated (default: the pod's own, else 'driverwright')",
        texts.words, _own_namespace, short="-n", chart="driverBuilder.namespaces",
    ))
    """The service account needs a Role in each."""
    templates: Path | None = field(metadata=_connection(
        "--templates", "DIR", "folder of *.Dockerfile.j2 templates that replace the built-in ones",
        texts.path,
    ))
    registry_ca_file: str | None = field(metadata=_connection(
        "--registry-ca-file", "FILE", "CA certificates for the registries (PEM)",
        texts.optional, chart="driverBuilder.registryCaConfigMap",
    ))
    registry_reach: Reach = field(metadata=_joined(
        Reach,
        Setting(
            "--registry-forbidden-ranges", "CIDR,...",
            "address ranges that a registry must not refer to (redirects, uploads, tokens), such as Pods and Services",
            parse_networks, field="forbidden", group=Group.CONNECTION,
        ),
        Setting(
            "--registry-allowed-hosts", "HOST[:PORT],...",
            "hosts that spec.image may name, and a registry may refer to, whatever their address, such as loopback",
            parse_hosts, field="allowed", group=Group.CONNECTION,
        ),
    ))
    registry_plain_http_passwords: bool = field(metadata=_connection(
        "--registry-plain-http-passwords", "",
        "allow sending the password of spec.registry.secretRef without TLS if spec.registry.plainHttp is set",
        texts.is_on,
    ))

    builder: BuilderKind = field(metadata=_builder(
        "--builder", texts.choices(BuilderKind), "builder of drivers without spec.build.builder (default docker)",
        texts.one_of(BuilderKind), "docker", chart="driverBuilder.builder",
    ))
    docker_host: str = field(metadata=_engine(
        "--docker-host", "URL",
        "container engine that builds: unix://, tcp:// or ssh://user@host (default: DOCKER_HOST)",
        str, lambda environment: environment.get("DOCKER_HOST") or DEFAULT_DOCKER_HOST,
        chart="driverBuilder.engine.host",
    ))
    docker_cert_path: Path | None = field(metadata=_engine(
        "--docker-cert-path", "DIR", "", texts.path, _docker_cert_path,
        retired="set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH",
    ))
    """Folder with ca.pem, cert.pem and key.pem for an engine over TLS."""
    build_network: str = field(metadata=_engine(
        "--build-network", "MODE",
        "network of builds in an engine: host, bridge, none, or the name of a network"
        f" (default {defaults.BUILD_NETWORK})",
        texts.network, defaults.BUILD_NETWORK,
    ))
    job_image: str = field(metadata=_builder(
        "--job-image", "IMAGE", "image with buildah, for builds in Jobs", chart="images.buildah",
    ))
    """Empty: no such builds."""
    hand_over_image: str = field(metadata=_builder(
        "--hand-over-image", "IMAGE", "driver-builder image, for builds in Jobs",
        chart="images.driverBuilder",
    ))
    job_node_selector: Mapping[str, str] = field(metadata=_builder(
        "--job-node-selector", "KEY=VALUE,...", "labels of the nodes that build Jobs run on (default: any)",
        texts.labels,
    ))
    job_tolerations: tuple[Json, ...] = field(metadata=_builder(
        "--job-tolerations", "KEY[=VALUE][:EFFECT],...",
        "taints that build Jobs tolerate, in addition to spec.tolerations (default: none)",
        texts.tolerations,
    ))
    job_host_network: bool = field(metadata=_builder(
        "--job-host-network", "", "build Jobs use their node's network", texts.is_on,
    ))
    job_work_size: str = field(metadata=_builder(
        "--job-work-size", "QUANTITY", "disk of a build Job for images and files of the build (default 20Gi)",
        texts.size, defaults.JOB_WORK_SIZE,
    ))
    job_output_size: str = field(metadata=_builder(
        "--job-output-size", "QUANTITY", "", lambda text: texts.size(text) if text else "",
        retired=f"a result may have a fifth of --job-work-size, and at least {defaults.JOB_OUTPUT_SIZE}",
    ))
    """Disk of a build Job for its result."""
    toolchains: bool = field(metadata=_builder(
        "--toolchains", "",
        "push compiler and headers of each kernel as an image, and build from it (default: no; never with --templates)",
        texts.is_on, chart="driverBuilder.toolchains",
    ))
    """Only stages of our own templates are known well enough: with ``templates`` it is off."""

    permissions: Permissions = field(metadata=_joined(Permissions, *PERMISSIONS))
    permission_texts: Mapping[str, str]
    """Those of its settings that are given, by their names and as they are written."""

    loader_image: str = field(metadata=_run(
        "--loader-image", "IMAGE", "image that driver pods copy their loader from (required)", chart="images.loader",
    ))
    """Empty: not set, which only ``run`` refuses."""
    device_agent_image: str = field(metadata=_run(
        "--device-agent-image", "IMAGE",
        "image of the device agent, for spec.stages.devicePlugin.resource and .nvidia (default: none)",
        chart="images.deviceAgent",
    ))
    device_agent_accounts: frozenset[str] = field(metadata=_run(
        "--device-agent-accounts", "NAMESPACE/NAME,...",
        "service accounts that spec.stages.devicePlugin.nvidia.serviceAccountName may name (default: none)",
        texts.objects("a service account"), chart="driverBuilder.deviceAgentAccounts",
    ))
    agent_drains: AgentDrains = field(metadata=_joined(
        AgentDrains,
        Setting(
            "--agent-drain-resources", "RESOURCE,...",
            "evict pods that request one of these resources when the device agent of their node asks for it;"
            " nvidia.com/mig-* for all names that begin so (default: none; docs/upgrades.md)",
            resource_patterns, field="resources", chart="driverBuilder.agentDrains.resources",
        ),
        Setting(
            "--agent-daemonsets", "NAMESPACE/NAME,...",
            "DaemonSets of device agents, whose nodes may ask for that, besides those of spec.stages (default: none)",
            texts.objects("a DaemonSet"), field="daemon_sets", chart="driverBuilder.agentDrains.daemonSets",
        ),
    ))
    dra_driver_accounts: frozenset[str] = field(metadata=_run(
        "--dra-driver-accounts", "NAMESPACE/NAME,...",
        "service accounts that spec.stages.devicePlugin.dra.serviceAccountName may name (default: none)",
        texts.objects("a service account"), chart="driverBuilder.draDriverAccounts",
    ))
    loader_privileges: LoaderPrivileges = field(metadata=_run(
        "--loader-privileges", texts.choices(LoaderPrivileges),
        "security context of what loads and unloads modules on nodes: privileged, or least, which adds the capabilities"
        " SYS_MODULE and SYSLOG to none (default privileged; docs/security.md)",
        texts.one_of(LoaderPrivileges), "privileged",
    ))
    max_builds: int = field(metadata=_run(
        "--max-builds", "N", "maximum number of concurrent builds (default 1)", texts.count, 1,
    ))
    build_deadline_seconds: float = field(metadata=_run(
        "--build-deadline-seconds", "S",
        f"stop a build after this long (default {defaults.BUILD_DEADLINE_SECONDS:g})",
        texts.seconds, defaults.BUILD_DEADLINE_SECONDS,
    ))
    max_build_deadline_seconds: float = field(metadata=_run(
        "--max-build-deadline-seconds", "S",
        f"maximum of spec.build.deadline (default {defaults.MAX_BUILD_DEADLINE_SECONDS:g})",
        texts.seconds, defaults.MAX_BUILD_DEADLINE_SECONDS,
    ))
    """A build holds its place in the queue that long."""
    unload_deadline_seconds: float = field(metadata=_run(
        "--unload-deadline-seconds", "S",
        "stop trying to unload a removed driver from a node after this long"
        f" (default {defaults.UNLOAD_DEADLINE_SECONDS:g})",
        texts.seconds, defaults.UNLOAD_DEADLINE_SECONDS,
    ))
    max_unavailable_nodes: int = field(metadata=_run(
        "--max-unavailable-nodes", "N",
        "replace working drivers on at most N nodes at once, all drivers together (default 0: no limit)",
        texts.limit, 0,
    ))
    identity: str = field(metadata=_run(
        "--identity", "NAME", "", str, lambda environment: environment.get("POD_NAME") or os.uname().nodename,
        retired="set POD_NAME; without it the holder of the Lease has the host's name",
    ))
    """Should survive a restart of the container."""
    lease_name: str = field(metadata=_run(
        "--lease-name", "NAME", "", str, defaults.LEASE_NAME,
        retired=f"the Lease in the first namespace is {defaults.LEASE_NAME}, which the Role has to name",
    ))
    feature_rules: bool = field(metadata=_run(
        "--no-feature-rules", "", "do not distribute NodeFeatureRule objects to the workers", texts.is_off,
        chart="nfdWorker.enabled",
    ))
    feature_rules_namespace: str = field(metadata=_run(
        "--feature-rules-namespace", "NAME", "", str, _own_namespace,
        retired="workers get NodeFeatureRules in the namespace of this pod",
    ))
    """Where the workers' DaemonSet and its ConfigMap are."""
    node_feature_namespaces: tuple[str, ...] = field(metadata=_node_features(
        "--node-feature-namespaces", "NAME,...",
        "namespaces whose NodeFeature objects label nodes, the first one first; none for nobody's"
        " (default: the pod's)",
        texts.namespaces, _own_namespace, chart="driverBuilder.nodeFeatures",
    ))
    port: int = field(metadata=_run(
        "--port", "N", "port of /healthz and /metrics, 0 for none (default 8080)", texts.port, 8080,
    ))
    waits: Waits = field(metadata=_run("--test-waits", "RESYNC,RETRY,RETRIES", "", texts.waits, Waits()))
    """Hidden: processes of tests cannot wait as long."""

    gc_repositories: tuple[str, ...] = field(metadata=_gc(
        "--gc-repositories", "HOST/PATH[/*],...",
        "repositories that only this cluster uses: images are removed from no others (default: none)",
        repository_patterns, NOTHING,
    ))
    keep_days: int = field(metadata=_gc(
        "--keep-days", "N",
        f"keep images for N days after they were last needed, at least {texts.MIN_KEEP_DAYS} (default 90)",
        texts.days, 90,
    ))
    registry_config: Path | None = field(metadata=_gc(
        "--registry-config", "FILE",
        "file like Docker's config.json with the passwords to use (default: the Secrets of the drivers)",
        texts.path,
    ))
    # fmt: on


IGNORED = (
    Setting("--resync-seconds", "S", "", retired=f"a reconcile comes at least every {Waits().resync:g} s"),
    Setting("--retry-min-seconds", "S", "", retired=f"a failed build is tried again after {Waits().retry_min:g} s"),
    Setting("--retry-max-seconds", "S", "", retired=f"a failing build is tried again within {Waits().retry_max:g} s"),
)
"""Retired, and without any effect."""
SETTINGS = (*(row for item in fields(Settings) for row in item.metadata.get("rows", ())), *IGNORED)
"""Every row, in the order of the help."""


def add_flags(parser: argparse.ArgumentParser, *groups: Group) -> None:
    """Add the flags of these groups."""
    limits = parser.add_argument_group("what DriverContainers may use (docs/security.md)")
    for row in SETTINGS:
        if row.group not in groups:
            continue
        place = limits if row.group is Group.PERMISSIONS else parser
        words = row.help if row.is_shown else argparse.SUPPRESS
        names = [name for name in (row.short, row.flag) if name]
        if not row.metavar:
            place.add_argument(*names, action="store_const", const="true", help=words)
        else:
            action = "append" if row.short else "store"
            place.add_argument(*names, action=action, metavar=row.metavar, help=words)


def settings(flags: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    """Join flags, environment and defaults.

    Raises:
        ConfigurationError: naming the flag or variable whose value is invalid.
    """
    environment = os.environ if environment is None else environment
    values = {
        item.name: item.metadata["make"](**dict(_values(item.metadata["rows"], flags, environment)))
        for item in fields(Settings)
        if item.metadata
    }
    given = {row.name: _given(row, flags, environment)[1] for row in PERMISSIONS}
    values["permission_texts"] = {name: text for name, text in given.items() if text is not None}
    values["job_output_size"] = values["job_output_size"] or _output_size(values["job_work_size"])
    values["toolchains"] = values["toolchains"] and values["templates"] is None
    return Settings(**values)


def warnings(flags: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Say of each retired setting that is given what applies instead."""
    environment = os.environ if environment is None else environment
    for row in SETTINGS:
        place, text = _given(row, flags, environment)
        if row.retired and text is not None:
            effect = "ignored" if row in IGNORED else "applies for the last time in this version"
            yield f"{place} is retired since {RETIRED_SINCE}, and {effect}: {row.retired}"


def _given(row: Setting, flags: argparse.Namespace, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the flag with its text, else the environment variable with its own, None where neither is given."""
    value = getattr(flags, row.name, None)
    if value is None:
        return row.variable, environment.get(row.variable) or None
    return row.flag, ",".join(value) if isinstance(value, list) else str(value)


def _values(
    rows: Iterable[Setting], flags: argparse.Namespace, environment: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Read the texts of rows, by their fields."""
    for row in rows:
        place, text = _given(row, flags, environment)
        default = row.default(environment) if callable(row.default) and not text else row.default
        if isinstance(default, str):
            text = text or default
        if text is None:
            if default is not None:
                yield row.field, default
            continue
        try:
            yield row.field, row.read(text)
        except ValueError as error:
            raise ConfigurationError(f"{place}: {error}") from error


def _output_size(work_size: str) -> str:
    """Return the room for the result of a build with this room for its files."""
    fifth = quantities.amount(work_size) // 5
    return str(int(fifth)) if fifth > quantities.amount(defaults.JOB_OUTPUT_SIZE) else defaults.JOB_OUTPUT_SIZE
