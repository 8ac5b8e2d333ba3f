"""Settings of driver-builder: flags over environment over defaults, as one frozen value."""

import argparse
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from driver_builder.api.driver_spec import BuilderKind
from driver_builder.base.errors import ConfigurationError
from driver_builder.model import defaults, permissions, quantities, registry_reach
from driver_builder.model.agent_drains import AgentDrains, resource_patterns
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.model.permissions import Permissions
from driver_builder.model.registry_reach import Reach
from kube_api import names
from kube_api.node_policy import parse_account

Json = dict[str, Any]

ENVIRONMENT_PREFIX = "DRIVER_BUILDER_"
DEFAULT_DOCKER_HOST = "unix:///var/run/docker.sock"
_Word = TypeVar("_Word", bound=StrEnum)

MIN_KEEP_DAYS, MAX_KEEP_DAYS = 14, 36500
"""The record of what is needed may have gaps of a week."""
DEFAULT_WORK_SIZE, DEFAULT_OUTPUT_SIZE = "20Gi", "4Gi"
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the controller runs. All durations in seconds."""

    kubeconfig: str | None
    """Path of a kubeconfig; None: the pod's service account, else kubectl's default."""
    namespaces: tuple[str, ...]
    """Where DriverContainers are watched; the service account needs a Role in each."""
    builder: BuilderKind
    """The builder of drivers whose spec names none."""
    docker_host: str
    """Engine that builds, as in DOCKER_HOST."""
    docker_cert_path: Path | None
    """Folder with ca.pem, cert.pem and key.pem for an engine over TLS, as in DOCKER_CERT_PATH."""
    loader_image: str
    """Image that driver pods get their loader from; empty: not set, which only ``run`` refuses."""
    device_agent_image: str
    """Image of the device plugin of ours; empty: none."""
    device_agent_accounts: frozenset[str]
    """The service accounts, ``namespace/name``, whose tokens the device plugin of ours may get."""
    dra_driver_accounts: frozenset[str]
    """Those that vendors' DRA drivers may have."""
    agent_drains: AgentDrains
    """What the device agents of nodes may have drained."""
    loader_privileges: LoaderPrivileges
    """What containers that load and unload modules may do on their node."""
    build_network: str
    """Network of builds in an engine: a mode of the engine, or the name of a network."""
    job_image: str
    """Image with buildah, for builds in Jobs; empty: no such builds."""
    hand_over_image: str
    """Image of this program, for builds in Jobs; empty: no such builds."""
    job_node_selector: Mapping[str, str]
    """Labels of the nodes that build Jobs run on, besides the architecture."""
    job_tolerations: tuple[Json, ...]
    """Taints that build Jobs tolerate, besides those that a driver's spec names."""
    job_host_network: bool
    """Whether build Jobs use their node's network, as in clusters without a pod network."""
    job_work_size: str
    """Room of a build Job for images and files of the build, as a quantity."""
    job_output_size: str
    """Room of a build Job for its result, as a quantity."""
    toolchains: bool
    """Whether builds begin with the kernels' toolchains, and push those that are missing. Only those of our own
    templates are known well enough: with ``templates`` it is off."""
    templates: Path | None
    """Folder of ``*.Dockerfile.j2``; None: those of the package."""
    registry_ca_file: str | None
    """CA certificates for registries, PEM; None: the system's."""
    registry_reach: Reach
    """Where a registry may redirect to, besides to itself."""
    registry_plain_http_passwords: bool
    """Whether a Secret's password may be sent without TLS, for a spec that says ``plainHttp``."""
    resync_seconds: float
    """Seconds between reconciles although nothing changed."""
    max_builds: int
    """Builds at the same time."""
    build_deadline_seconds: float
    """A build that takes longer is stopped."""
    max_build_deadline_seconds: float
    """The longest deadline that a DriverContainer may set: a build holds its place in the queue that long."""
    permissions: Permissions
    """What drivers may use."""
    permission_texts: Mapping[str, str]
    """Those of its settings that are given, by their names and as they are written."""
    retry_min_seconds: float
    """Wait after the first failure of a build."""
    retry_max_seconds: float
    """Longest wait between tries of a failing build."""
    unload_deadline_seconds: float
    """How long unloading a removed driver from a node is tried."""
    max_unavailable_nodes: int
    """On how many nodes working drivers are replaced at once, of all drivers together; 0 is no limit."""
    identity: str
    """Holder of the Lease: should survive a restart of the container."""
    lease_name: str
    """Name of the Lease, in the first namespace."""
    feature_rules: bool
    """Whether NodeFeatureRule objects are compiled for the workers."""
    feature_rules_namespace: str
    """Where the workers' DaemonSet and its ConfigMap are."""
    node_feature_namespaces: tuple[str, ...]
    """Whose NodeFeature objects label nodes, the first one first; empty: nobody's."""
    port: int
    """Port of /healthz and /metrics; 0: none."""
    gc_repositories: tuple[str, ...]
    """Patterns of the repositories from which ``gc`` may remove images: nobody else uses them."""
    keep_days: int
    """Days for which ``gc`` keeps an image that is not needed any more."""
    registry_config: Path | None
    """A Docker configuration with the registries' passwords for ``gc``; None: the Secrets of the drivers."""


def add_connection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags every command shares."""
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to use instead of the pod's service account")
    parser.add_argument(
        "-n", "--namespace", action="append", metavar="NAME",
        help="namespace of the DriverContainers; may be repeated (default: the pod's own, "
        "else 'driverwright')",
    )  # fmt: skip
    parser.add_argument(
        "--templates",
        metavar="DIR",
        type=Path,
        help="folder of *.Dockerfile.j2 templates that replace the built-in ones",
    )
    parser.add_argument("--registry-ca-file", metavar="FILE", help="CA certificates for the registries (PEM)")
    parser.add_argument(
        "--registry-forbidden-ranges",
        metavar="CIDR,...",
        help="address ranges that a registry must not refer to (redirects, uploads, tokens), such as Pods and Services",
    )
    parser.add_argument(
        "--registry-allowed-hosts",
        metavar="HOST[:PORT],...",
        help="hosts that spec.image may name, and a registry may refer to, whatever their address, such as loopback",
    )
    parser.add_argument(
        "--registry-plain-http-passwords",
        action="store_const",
        const="true",
        help="allow sending the password of spec.registry.secretRef without TLS if spec.registry.plainHttp is set",
    )


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the controller."""
    add_builder_flags(parser)
    add_permission_flags(parser)
    parser.add_argument(
        "--loader-image", metavar="IMAGE", help="image that driver pods copy their loader from (required)"
    )
    parser.add_argument(
        "--device-agent-image",
        metavar="IMAGE",
        help="image of the device agent, for spec.stages.devicePlugin.resource and .nvidia (default: none)",
    )
    parser.add_argument(
        "--device-agent-accounts",
        metavar="NAMESPACE/NAME,...",
        help="service accounts that spec.stages.devicePlugin.nvidia.serviceAccountName may name (default: none)",
    )
    add_agent_drain_flags(parser)
    parser.add_argument(
        "--dra-driver-accounts",
        metavar="NAMESPACE/NAME,...",
        help="service accounts that spec.stages.devicePlugin.dra.serviceAccountName may name (default: none)",
    )
    parser.add_argument(
        "--loader-privileges",
        choices=[word.value for word in LoaderPrivileges],
        help="security context of what loads and unloads modules on nodes: privileged, or least, which adds the"
        " capabilities SYS_MODULE and SYSLOG to none (default privileged; docs/security.md)",
    )
    parser.add_argument(
        "--resync-seconds", type=_positive, metavar="S", help="reconcile at least this often (default 60)"
    )
    parser.add_argument(
        "--max-builds", type=_count, metavar="N", help="maximum number of concurrent builds (default 1)"
    )
    parser.add_argument(
        "--build-deadline-seconds",
        type=_positive,
        metavar="S",
        help=f"stop a build after this long (default {defaults.BUILD_DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--max-build-deadline-seconds",
        type=_positive,
        metavar="S",
        help=f"maximum of spec.build.deadline (default {defaults.MAX_BUILD_DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--retry-min-seconds",
        type=_positive,
        metavar="S",
        help=f"delay after a build's first failure (default {defaults.RETRY_MIN_SECONDS:g})",
    )
    parser.add_argument(
        "--retry-max-seconds",
        type=_positive,
        metavar="S",
        help=f"maximum delay between attempts (default {defaults.RETRY_MAX_SECONDS:g})",
    )
    parser.add_argument(
        "--unload-deadline-seconds",
        type=_positive,
        metavar="S",
        help="stop trying to unload a removed driver from a node after this long"
        f" (default {defaults.UNLOAD_DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--max-unavailable-nodes",
        type=_limit,
        metavar="N",
        help="replace working drivers on at most N nodes at once, all drivers together (default 0: no limit)",
    )
    parser.add_argument("--identity", metavar="NAME", help="holder of the Lease (default: POD_NAME or host name)")
    parser.add_argument("--lease-name", metavar="NAME", help="name of the Lease (default driver-builder)")
    parser.add_argument(
        "--no-feature-rules",
        action="store_const",
        const="true",
        help="do not distribute NodeFeatureRule objects to the workers",
    )
    parser.add_argument(
        "--feature-rules-namespace", metavar="NAME", help="namespace of the nfd-worker DaemonSet (default: the pod's)"
    )
    add_node_feature_flags(parser)
    parser.add_argument(
        "--port", type=_port, metavar="N", help="port of /healthz and /metrics, 0 for none (default 8080)"
    )


def add_agent_drain_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what the device agents of nodes may have drained."""
    parser.add_argument(
        "--agent-drain-resources",
        metavar="RESOURCE,...",
        help="evict pods that request one of these resources when the device agent of their node asks for it;"
        " nvidia.com/mig-* for all names that begin so (default: none; docs/upgrades.md)",
    )
    parser.add_argument(
        "--agent-daemonsets",
        metavar="NAMESPACE/NAME,...",
        help="DaemonSets of device agents, whose nodes may ask for that, besides those of spec.stages (default: none)",
    )


def add_node_feature_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flag of third parties' labels."""
    parser.add_argument(
        "--node-feature-namespaces",
        metavar="NAME,...",
        help="namespaces whose NodeFeature objects label nodes, the first one first; none for nobody's"
        " (default: the pod's)",
    )


def add_builder_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what builds."""
    parser.add_argument(
        "--builder", choices=list(BuilderKind), help="builder of drivers without spec.build.builder (default docker)"
    )
    add_engine_flags(parser)
    parser.add_argument("--job-image", metavar="IMAGE", help="image with buildah, for builds in Jobs")
    parser.add_argument("--hand-over-image", metavar="IMAGE", help="driver-builder image, for builds in Jobs")
    parser.add_argument(
        "--job-node-selector", metavar="KEY=VALUE,...", help="labels of the nodes that build Jobs run on (default: any)"
    )
    parser.add_argument(
        "--job-tolerations",
        metavar="KEY[=VALUE][:EFFECT],...",
        help="taints that build Jobs tolerate, in addition to spec.tolerations (default: none)",
    )
    parser.add_argument(
        "--job-host-network", action="store_const", const="true", help="build Jobs use their node's network"
    )
    parser.add_argument(
        "--job-work-size",
        metavar="QUANTITY",
        help="disk of a build Job for images and files of the build (default 20Gi)",
    )
    parser.add_argument(
        "--job-output-size", metavar="QUANTITY", help="disk of a build Job for its result (default 4Gi)"
    )
    parser.add_argument(
        "--toolchains",
        action="store_const",
        const="true",
        help="push compiler and headers of each kernel as an image, and build from it (default: no; never with"
        " --templates)",
    )


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the engine that builds."""
    parser.add_argument(
        "--docker-host",
        metavar="URL",
        help="container engine that builds: unix://, tcp:// or ssh://user@host (default: DOCKER_HOST)",
    )
    parser.add_argument(
        "--docker-cert-path",
        metavar="DIR",
        help="ca.pem, cert.pem and key.pem for an engine over TLS (default: DOCKER_CERT_PATH with DOCKER_TLS_VERIFY)",
    )
    parser.add_argument(
        "--build-network",
        metavar="MODE",
        help="network of builds in an engine: host, bridge, none, or the name of a network (default host)",
    )


def add_gc_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what is removed from registries."""
    parser.add_argument(
        "--gc-repositories",
        metavar="HOST/PATH[/*],...",
        help="repositories that only this cluster uses: images are removed from no others (default: none)",
    )
    parser.add_argument(
        "--keep-days",
        type=_days,
        metavar="N",
        help=f"keep images for N days after they were last needed, at least {MIN_KEEP_DAYS} (default 90)",
    )
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="file like Docker's config.json with the passwords to use (default: the Secrets of the drivers)",
    )


def add_permission_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what drivers may use."""
    group = parser.add_argument_group("what DriverContainers may use (docs/security.md)")
    for setting in permissions.SETTINGS:
        if setting.metavar:
            group.add_argument(setting.flag, metavar=setting.metavar, help=setting.help)
        else:
            group.add_argument(setting.flag, action="store_const", const="true", help=setting.help)


def settings(flags: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    """Join flags, environment and defaults.

    Raises:
        ConfigurationError: naming the flag or variable whose value is invalid.
    """
    environment = os.environ if environment is None else environment
    pick = _Picker(flags, environment)
    permission_texts = _permission_texts(pick)
    return Settings(
        kubeconfig=pick.text("kubeconfig"),
        namespaces=tuple(flags.namespace or pick.words("namespace") or (_own_namespace(environment),)),
        builder=_one_of(BuilderKind, "--builder", pick.text("builder")),
        loader_image=pick.text("loader_image") or "",
        device_agent_image=pick.text("device_agent_image") or "",
        device_agent_accounts=_objects("--device-agent-accounts", "a service account", pick),
        dra_driver_accounts=_objects("--dra-driver-accounts", "a service account", pick),
        agent_drains=AgentDrains(
            resources=_agent_resources(pick.text("agent_drain_resources") or ""),
            daemon_sets=_objects("--agent-daemonsets", "a DaemonSet", pick),
        ),
        loader_privileges=_one_of(LoaderPrivileges, "--loader-privileges", pick.text("loader_privileges")),
        job_image=pick.text("job_image") or "",
        hand_over_image=pick.text("hand_over_image") or "",
        job_node_selector=_labels(pick.text("job_node_selector") or ""),
        job_tolerations=_tolerations(pick.text("job_tolerations") or ""),
        job_host_network=pick.switch("job_host_network"),
        job_work_size=_size("--job-work-size", pick.text("job_work_size") or DEFAULT_WORK_SIZE),
        job_output_size=_size("--job-output-size", pick.text("job_output_size") or DEFAULT_OUTPUT_SIZE),
        build_network=_network(pick.text("build_network") or "host"),
        docker_host=pick.text("docker_host") or environment.get("DOCKER_HOST") or DEFAULT_DOCKER_HOST,
        docker_cert_path=_path(pick.text("docker_cert_path") or _docker_cert_path(environment)),
        toolchains=pick.switch("toolchains") and not pick.text("templates"),
        templates=_path(pick.text("templates")),
        registry_ca_file=pick.text("registry_ca_file"),
        registry_reach=_reach(pick.text("registry_forbidden_ranges") or "", pick.text("registry_allowed_hosts") or ""),
        registry_plain_http_passwords=pick.switch("registry_plain_http_passwords"),
        resync_seconds=pick.number("resync_seconds", 60.0, _positive),
        max_builds=int(pick.number("max_builds", 1, _count)),
        build_deadline_seconds=pick.number("build_deadline_seconds", defaults.BUILD_DEADLINE_SECONDS, _positive),
        max_build_deadline_seconds=pick.number(
            "max_build_deadline_seconds", defaults.MAX_BUILD_DEADLINE_SECONDS, _positive
        ),
        permissions=permissions_of(permission_texts),
        permission_texts=permission_texts,
        retry_min_seconds=pick.number("retry_min_seconds", defaults.RETRY_MIN_SECONDS, _positive),
        retry_max_seconds=pick.number("retry_max_seconds", defaults.RETRY_MAX_SECONDS, _positive),
        unload_deadline_seconds=pick.number("unload_deadline_seconds", defaults.UNLOAD_DEADLINE_SECONDS, _positive),
        max_unavailable_nodes=int(pick.number("max_unavailable_nodes", 0, _limit)),
        identity=pick.text("identity") or environment.get("POD_NAME") or os.uname().nodename,
        lease_name=pick.text("lease_name") or "driver-builder",
        feature_rules=not pick.switch("no_feature_rules"),
        feature_rules_namespace=pick.text("feature_rules_namespace") or _own_namespace(environment),
        node_feature_namespaces=_namespaces(
            "--node-feature-namespaces", pick.text("node_feature_namespaces") or _own_namespace(environment)
        ),
        port=int(pick.number("port", 8080, _port)),
        gc_repositories=_repositories("--gc-repositories", pick.text("gc_repositories") or permissions.NOTHING),
        keep_days=int(pick.number("keep_days", 90, _days)),
        registry_config=_path(pick.text("registry_config")),
    )


@dataclass(frozen=True, slots=True)
class _Picker:
    flags: argparse.Namespace
    environment: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """The flag, else the environment variable, else None."""
        value = getattr(self.flags, name, None)
        return str(value) if value is not None else self.environment.get(ENVIRONMENT_PREFIX + name.upper()) or None

    def switch(self, name: str) -> bool:
        """Whether the flag is given, or the environment variable says true."""
        return (self.text(name) or "").lower() in ("1", "true")

    def words(self, name: str) -> list[str]:
        """The list in a comma-separated environment variable."""
        text = self.environment.get(ENVIRONMENT_PREFIX + name.upper(), "")
        return [word.strip() for word in text.split(",") if word.strip()]

    def number(self, name: str, default: float, check: Callable[[str], float]) -> float:
        """The flag, else the checked environment variable, else ``default``."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return check(value)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ConfigurationError(f"{ENVIRONMENT_PREFIX}{name.upper()}: {value!r}: {error}") from error


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _limit(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is neither a number of nodes nor 0 for no limit")
    return value


def _days(text: str) -> int:
    value = int(text)
    if not MIN_KEEP_DAYS <= value <= MAX_KEEP_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not a number of days from {MIN_KEEP_DAYS} to {MAX_KEEP_DAYS}")
    return value


def _repositories(flag: str, text: str) -> tuple[str, ...]:
    try:
        return permissions.repository_patterns(text)
    except ValueError as error:
        raise ConfigurationError(f"{flag}: {error}") from error


def _namespaces(flag: str, text: str) -> tuple[str, ...]:
    """Read names of namespaces in their order, each once."""
    if text.strip() == permissions.NOTHING:
        return ()
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise ConfigurationError(f"{flag}: {name!r} is not a namespace: write NAME,... or {permissions.NOTHING}")
    return found


def _objects(flag: str, what: str, pick: _Picker) -> frozenset[str]:
    """Read names of objects with their namespaces; nothing at all, and the word for nothing, are none."""
    text = pick.text(flag.removeprefix("--").replace("-", "_")) or ""
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = [] if words == [permissions.NOTHING] else words
    for name in found:
        if parse_account(name) is None:
            wanted = f"write NAMESPACE/NAME,... or {permissions.NOTHING}"
            raise ConfigurationError(f"{flag}: {name!r} is not {what}: {wanted}")
    return frozenset(found)


def _agent_resources(text: str) -> tuple[str, ...]:
    try:
        return resource_patterns(text)
    except ValueError as error:
        raise ConfigurationError(f"--agent-drain-resources: {error}") from error


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return value


def _one_of(kind: type[_Word], flag: str, text: str | None) -> _Word:
    """Read one of a list of words, of which the first is the default."""
    try:
        return kind(text or next(iter(kind)))
    except ValueError as error:
        raise ConfigurationError(f"{flag}: {text!r} is not one of {', '.join(kind)}") from error


def _network(text: str) -> str:
    if not _NETWORK.fullmatch(text):
        raise ConfigurationError(
            f"--build-network: {text!r} is not a network: write host, bridge, none, or the name of one in the engine"
        )
    return text


def _size(flag: str, text: str) -> str:
    try:
        if quantities.amount(text) < 1:
            raise ConfigurationError(f"{flag}: {text!r} is no room at all: write a quantity such as 20Gi")
    except ValueError as error:
        raise ConfigurationError(f"{flag}: {error}") from error
    return text


def _reach(forbidden_ranges: str, allowed_hosts: str) -> Reach:
    try:
        return registry_reach.reach(forbidden_ranges=forbidden_ranges, allowed_hosts=allowed_hosts)
    except ValueError as error:
        raise ConfigurationError(f"--registry-forbidden-ranges: {error}: write CIDR,...") from error


def _permission_texts(pick: _Picker) -> Mapping[str, str]:
    texts = ((setting.name, pick.text(setting.name)) for setting in permissions.SETTINGS)
    return {name: text for name, text in texts if text is not None}


def permissions_of(texts: Mapping[str, str], base: Permissions = Permissions()) -> Permissions:  # noqa: B008 - immutable
    """Read what drivers may use; a setting that is not given is that of ``base``.

    Raises:
        ConfigurationError: naming the flag whose value is invalid.
    """
    try:
        return permissions.read(texts, base)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _labels(text: str) -> Mapping[str, str]:
    pairs = [word.strip().partition("=") for word in text.split(",") if word.strip()]
    for key, equals, value in pairs:
        if not equals or not names.is_qualified_name(key) or not names.is_label_value(value):
            raise ConfigurationError(
                f"--job-node-selector: {key + equals + value!r} is not a label: write KEY=VALUE,..."
            )
    return {key: value for key, _, value in pairs}


def _tolerations(text: str) -> tuple[Json, ...]:
    """Read taints as kubectl writes them; a missing value or effect means all values or effects."""
    return tuple(_toleration(word.strip()) for word in text.split(",") if word.strip())


def _toleration(text: str) -> Json:
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    is_effect = effect in _EFFECTS if colon else True
    if not (is_effect and names.is_qualified_name(key) and names.is_label_value(value)):
        raise ConfigurationError(
            f"--job-tolerations: {text!r} is not a taint: write KEY[=VALUE][:EFFECT],... with an effect of"
            f" {', '.join(_EFFECTS)}"
        )
    toleration = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return toleration | ({"effect": effect} if colon else {})


def _docker_cert_path(environment: Mapping[str, str]) -> str | None:
    """Where the docker command would look: it uses TLS if the variable is set to anything."""
    if not environment.get("DOCKER_TLS_VERIFY"):
        return None
    return environment.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _own_namespace(environment: Mapping[str, str]) -> str:
    if environment.get("POD_NAMESPACE"):
        return environment["POD_NAMESPACE"]
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "driverwright"
