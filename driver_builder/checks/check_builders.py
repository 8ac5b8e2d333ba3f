"""Checks of what builds: an engine, or Jobs. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.base.check_result import CheckResult, failed, ok, unknown, warning
from driver_builder.checks.finding import Unread, counted, named, not_read
from driver_builder.objects.tolerations import with_ours
from driver_builder.snapshot.inventory import Node
from kube_api import names
from kube_api.text import printable

Json = Mapping[str, Any]

LEAST_FREE = 10 << 30
"""Bytes. An engine with compiler and headers of a few kernels has this much in its cache."""
_SCHEDULED = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine says of itself; ``free`` are bytes of its disk, None where they cannot be seen from here."""

    version: str
    architecture: str = ""
    storage: str = ""
    free: int | None = None


def check_engine(address: str, found: Engine | Unread) -> CheckResult:
    """Judge an engine that was asked."""
    if isinstance(found, Unread):
        return failed(
            "engine",
            found.message,
            "Start it, or correct --docker-host and DOCKER_CERT_PATH; without any, let Jobs build (--builder job)",
        )
    words = ", ".join(filter(None, [f"version {found.version}", found.architecture, found.storage]))
    if found.free is None:
        return ok("engine", f"{address}: {words}; free disk is not known")
    free = f"{found.free / (1 << 30):.0f} GiB free"
    if found.free < LEAST_FREE:
        return warning(
            "engine",
            f"{address}: {words}; only {free}",
            "Free disk on the engine's machine (docker system prune), before builds fail with DiskFull",
        )
    return ok("engine", f"{address}: {words}; {free}")


def engine_not_asked(address: str, controller: str) -> CheckResult:
    """Report an engine that only the controller's node can reach."""
    return unknown(
        "engine",
        f"{address} is the controller's; it cannot be reached from here",
        f"kubectl exec {controller} -- driver-builder doctor, or give its address by --docker-host",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """How build Jobs are made; ``accounts`` are the ServiceAccounts of their pods by namespace."""

    image: str
    hand_over_image: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    accounts: Mapping[str, Json | Unread | None] = field(default_factory=dict)


def check_jobs(setup: JobSetup, nodes: tuple[Node, ...] | Unread) -> Iterator[CheckResult]:
    """Report what build Jobs lack: images, service accounts, nodes."""
    unset = [
        flag
        for flag, image in (("--job-image", setup.image), ("--hand-over-image", setup.hand_over_image))
        if not image
    ]
    if unset:
        yield failed("jobs", f"{' and '.join(unset)} not set", "Set them as deploy/driver-builder/deployment.yaml does")
    missing = [namespace for namespace, account in setup.accounts.items() if account is None]
    if missing:
        yield failed(
            "jobs",
            f"the ServiceAccount driver-builder-job is missing in {named(missing)}",
            f"kubectl create serviceaccount driver-builder-job -n {missing[0]} (deploy/driver-builder/rbac.yaml)",
        )
    if isinstance(nodes, Unread):
        yield not_read("jobs", "Nodes", nodes)
        return
    wrong = [*_without_builders(setup, nodes)]
    yield from wrong
    if not (unset or missing or wrong):
        yield ok(
            "jobs", f"{counted(len(_builders(setup, nodes)), 'node')} may build; image {printable(setup.image, 200)}"
        )


def _without_builders(setup: JobSetup, nodes: tuple[Node, ...]) -> Iterator[CheckResult]:
    """Report each architecture of the cluster that no node may build for."""
    builders = _builders(setup, nodes)
    for architecture in sorted({node.labels.get(names.ARCHITECTURE_LABEL, "") for node in nodes}):
        of_kind = [node for node in nodes if node.labels.get(names.ARCHITECTURE_LABEL, "") == architecture]
        if architecture and not any(node in builders for node in of_kind):
            why = named(dict.fromkeys(_obstacle(setup, node) for node in of_kind))
            yield failed(
                "jobs",
                f"no {architecture} node may build: {why}",
                "Change --job-node-selector or --job-tolerations, or let a driver's spec.tolerations name the taint",
            )


def _builders(setup: JobSetup, nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if not _obstacle(setup, node)]


def _obstacle(setup: JobSetup, node: Node) -> str:
    """Say why no build Job would run on a node; empty where one may."""
    if not node.ready:
        return "not Ready"
    if node.unschedulable:
        return "cordoned"
    for key, value in setup.node_selector.items():
        if node.labels.get(key) != value:
            return f"without label {key}={value}"
    for taint in node.taints:
        if taint.effect in _SCHEDULED and not any(map(taint.is_tolerated, with_ours(setup.tolerations))):
            return f"taint {taint}"
    return ""
