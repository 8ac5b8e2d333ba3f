"""Checks of the controller: its Deployment, its version and its Lease. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from driver_builder.base.check_result import CheckResult, failed, ok, unknown, warning
from driver_builder.checks.deployed import DEPLOYMENT, container_of
from driver_builder.checks.finding import Unread, counted, named, not_read
from kube_api.text import printable

Json = Mapping[str, Any]

_CHECK = "controller"
_DEPLOY = "kubectl apply -k deploy (docs/operations.md)"


def check_deployment(
    found: Json | Unread | None, pods: Iterable[Json] | Unread, *, namespaces: Iterable[str]
) -> Iterator[CheckResult]:
    """Report a controller that is missing or does not run, and why its pods do not."""
    if isinstance(found, Unread):
        yield not_read(_CHECK, f"Deployment {DEPLOYMENT}", found)
        return
    if found is None:
        where = named(namespaces)
        yield failed(
            _CHECK, f"there is no Deployment {DEPLOYMENT} in {where}", f"{_DEPLOY}, or name its namespace by -n"
        )
        return
    name = f"Deployment {found['metadata']['namespace']}/{found['metadata']['name']}"
    wanted, status = found["spec"].get("replicas", 1), found.get("status") or {}
    available = status.get("availableReplicas", 0)
    image = printable(str(container_of(found, DEPLOYMENT).get("image", "")), 200)
    if not wanted:
        scale = f"kubectl scale -n {found['metadata']['namespace']} deployment/{DEPLOYMENT} --replicas=1"
        yield failed(_CHECK, f"{name} has no replicas", scale)
    elif available < wanted:
        why = "; ".join(dict.fromkeys(troubles(() if isinstance(pods, Unread) else pods))) or _condition(status)
        yield failed(
            _CHECK,
            f"{name}: {available} of {wanted} available: {why}",
            f"kubectl describe pods -n {found['metadata']['namespace']} -l app.kubernetes.io/name={DEPLOYMENT}",
        )
    else:
        yield ok(_CHECK, f"{name}: {available} of {wanted} available, image {image}")


def check_setup(*, loader_image: str) -> Iterator[CheckResult]:
    """Report a setting without which no driver can be rolled out."""
    if not loader_image:
        yield failed(
            _CHECK, "--loader-image is not set: the controller does not start", "Set DRIVER_BUILDER_LOADER_IMAGE"
        )


def check_version(check: str, own: str, running: Iterable[str], image: str) -> CheckResult:
    """Compare the versions that run with the one of this program; without an answer, the tag of the image."""
    versions = sorted(set(running))
    if others := [version for version in versions if version != own]:
        return warning(
            check,
            f"version {named(others)} runs in the cluster, and this program is {own}",
            "Use the same version: kubectl exec in the controller's pod, or install the images of this version",
        )
    if versions:
        return ok(check, f"version {own}, as this program")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if tag.removeprefix("v") == own:
        return ok(check, f"image {printable(image, 200)} has the version of this program")
    return unknown(
        check,
        f"the version of {printable(image, 200) or 'the image'} is not known: its /metrics cannot be read from here",
        f"Compare it with {own}: kubectl exec in the pod, with --version",
    )


def check_lease(lease: Json | Unread | None, now: float, *, name: str) -> CheckResult:
    """Report who holds the Lease, and whether it is renewed; ``now`` in seconds since the epoch."""
    check = "lease"
    if isinstance(lease, Unread):
        return not_read(check, name, lease)
    logs = f"See why: kubectl logs -n {name.partition('/')[0]} deployment/{DEPLOYMENT}"
    if lease is None:
        return failed(check, f"there is no Lease {name}: no controller has run yet", logs)
    spec = lease.get("spec") or {}
    holder = printable(str(spec.get("holderIdentity") or ""), 253)
    if not holder:
        return failed(check, f"{name} has no holder: no controller acts", logs)
    try:
        age = now - datetime.fromisoformat(str(spec.get("renewTime"))).timestamp()
    except ValueError:
        return unknown(check, f"{name} is held by {holder}; when it was renewed cannot be read")
    seconds = float(spec.get("leaseDurationSeconds") or 15)
    if age > seconds:
        return failed(check, f"{name}: {holder} has not renewed it for {age:.0f} s", logs)
    return ok(check, f"{name} is held by {holder}, renewed {max(age, 0):.0f} s ago")


def troubles(pods: Iterable[Json]) -> Iterator[str]:
    """Say of each pod that is not ready why, in the words of scheduler and kubelet."""
    for pod in pods:
        status = pod.get("status") or {}
        conditions = {item.get("type"): item for item in status.get("conditions") or ()}
        if (conditions.get("Ready") or {}).get("status") == "True":
            continue
        states = [item.get("state") or {} for item in status.get("containerStatuses") or ()]
        waiting = [state["waiting"] for state in states if state.get("waiting")]
        scheduled = conditions.get("PodScheduled") or {}
        if scheduled.get("status") == "False":
            yield printable(f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}", 300)
        elif waiting:
            yield printable(f"{waiting[0].get('reason', '')}: {waiting[0].get('message', '')}", 300).rstrip(": ")
        else:
            restarts = sum(item.get("restartCount", 0) for item in status.get("containerStatuses") or ())
            yield f"{printable(str(status.get('phase', 'not started')), 63)}, {counted(restarts, 'restart')}"


def _condition(status: Json) -> str:
    messages = [item.get("message", "") for item in status.get("conditions") or () if item.get("status") != "True"]
    return printable(next(iter(messages), "") or "no pod is ready", 300)
