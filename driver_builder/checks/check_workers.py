"""Checks of nfd-worker: its pods, and the labels that every target needs. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.check_result import CheckResult, failed, ok, warning
from driver_builder.checks.check_controller import troubles
from driver_builder.checks.deployed import WORKERS
from driver_builder.checks.finding import Unread, counted, named, not_read
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node

Json = Mapping[str, Any]

_CHECK = "workers"
_OS_LABEL = "kubernetes.io/os"


def check_workers(
    found: Json | Unread | None, pods: Iterable[Json] | Unread, *, namespace: str
) -> Iterator[CheckResult]:
    """Report a DaemonSet that is missing, and pods of it that are not ready."""
    if isinstance(found, Unread):
        yield not_read(_CHECK, f"DaemonSet {namespace}/{WORKERS}", found)
        return
    if found is None:
        yield warning(
            _CHECK,
            f"there is no DaemonSet {WORKERS} in namespace {namespace}",
            "kubectl apply -k deploy; or let Node Feature Discovery set the labels of kernel and operating system",
        )
        return
    status = found.get("status") or {}
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    if not wanted:
        yield failed(
            _CHECK,
            f"DaemonSet {namespace}/{WORKERS} selects no node",
            f"kubectl describe daemonset -n {namespace} {WORKERS}",
        )
    elif ready < wanted:
        unready = [] if isinstance(pods, Unread) else [pod for pod in pods if not is_ready(pod)]
        where = named(str((pod.get("spec") or {}).get("nodeName", "no node")) for pod in unready)
        why = "; ".join(dict.fromkeys(troubles(unready[:1])))
        yield warning(
            _CHECK,
            f"{ready} of {wanted} nfd-worker pods are ready" + (f"; not on {where}: {why}" if unready else ""),
            f"kubectl get pods -n {namespace} -l app.kubernetes.io/name={WORKERS} -o wide",
        )
    else:
        yield ok(_CHECK, f"{counted(ready, 'nfd-worker pod')} ready of {wanted}")


def check_labels(
    nodes: tuple[Node, ...] | Unread, drivers: Iterable[DriverContainer], *, namespace: str
) -> Iterator[CheckResult]:
    """Report nodes whose labels name no target; it fails where a driver selects such a node."""
    if isinstance(nodes, Unread):
        yield not_read("labels", "Nodes", nodes)
        return
    linux = [node for node in nodes if node.labels.get(_OS_LABEL, "linux") == "linux"]
    wrong = {node.name: why for node in linux if isinstance(why := inventory.target_of(node), str)}
    kernels = {target.kernel_version for node in linux if isinstance(target := inventory.target_of(node), KernelTarget)}
    if not linux:
        yield warning("labels", "the cluster has no Linux node", "Add nodes: drivers are built for their kernels")
    elif not wrong:
        yield ok("labels", f"{counted(len(linux), 'node')}, {counted(len(kernels), 'kernel')}: all have their labels")
    else:
        selected = [
            node.name for node in linux if node.name in wrong and any(_selects(driver, node) for driver in drivers)
        ]
        first = (selected or sorted(wrong))[0]
        report = failed if selected else warning
        yield report(
            "labels",
            f"{len(wrong)} of {counted(len(linux), 'node')} have no labels of kernel or operating system, and get no"
            f" driver: {named(selected or sorted(wrong))} ({wrong[first].removeprefix(f'node {first}').lstrip(': ')})",
            f"See the worker there: kubectl get pods -n {namespace} -o wide --field-selector spec.nodeName={first}",
        )


def is_ready(pod: Json) -> bool:
    """Return whether a pod's condition Ready is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _selects(driver: DriverContainer, node: Node) -> bool:
    if not isinstance(driver.spec, DriverSpec):
        return False
    return all(node.labels.get(key) == value for key, value in driver.spec.node_selector.items())
