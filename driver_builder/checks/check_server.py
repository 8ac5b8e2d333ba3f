"""Checks of the API server: its version, its clock, and the namespaces of the drivers. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from driver_builder.base.check_result import CheckResult, failed, ok, unknown, warning
from driver_builder.checks.finding import Unread, named, not_read
from driver_builder.model.server_version import minor_of
from kube_api.text import printable

Json = Mapping[str, Any]

CEL_MINOR, POLICIES_MINOR = 25, 30
"""Of Kubernetes 1: from here on the rules of a schema are evaluated, and there are admission policies."""
MAX_SKEW_SECONDS = 5.0
ENFORCED = "pod-security.kubernetes.io/enforce"


def check_version(version: Json) -> CheckResult:
    """Report the server's version, and what this program does not get from it."""
    found, minor = f"Kubernetes {printable(str(version.get('gitVersion', '?')), 63)}", minor_of(version)
    if minor is None:
        return warning("server", f"{found}: the version cannot be read", "See docs/kubernetes-versions.md")
    lacks = []
    if minor < CEL_MINOR:
        lacks.append(f"rules (CEL) of the DriverContainer schema are not evaluated before 1.{CEL_MINOR}")
    if minor < POLICIES_MINOR:
        lacks.append(f"no admission policies before 1.{POLICIES_MINOR}")
    if not lacks:
        return ok("server", found)
    return warning(
        "server",
        f"{found}: {'; '.join(lacks)}",
        "Run driver-builder lint before you apply a DriverContainer; docs/kubernetes-versions.md has what else differs",
    )


def check_clock(date: str, now: float) -> CheckResult:
    """Compare the ``Date`` of a response with the clock here, in seconds since the epoch."""
    try:
        sent = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return unknown("clock", "the API server does not send its time")
    skew = now - (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
    if abs(skew) <= MAX_SKEW_SECONDS:
        return ok("clock", f"this clock and the API server's differ by less than {MAX_SKEW_SECONDS:g} s")
    direction = "ahead of" if skew > 0 else "behind"
    return warning(
        "clock",
        f"the clock here is {abs(skew):.0f} s {direction} the API server's",
        "Set the clocks by NTP: tokens, certificates and the Lease depend on them",
    )


def check_namespaces(namespaces: Mapping[str, Json | Unread | None]) -> Iterable[CheckResult]:
    """Report namespaces that do not exist, are being deleted, or refuse the pods that load drivers."""
    missing = [name for name, found in namespaces.items() if found is None]
    if missing:
        yield failed(
            "namespaces",
            f"missing: {named(missing)}",
            f"kubectl create namespace {missing[0]}, with the Role and RoleBinding of deploy/driver-builder/rbac.yaml"
            " in it; or correct --namespace",
        )
    for name, found in namespaces.items():
        if isinstance(found, Unread):
            yield not_read("namespaces", name, found)
        elif found is not None:
            yield from _of_namespace(name, found)
    good = [
        name for name, found in namespaces.items() if isinstance(found, Mapping) and not [*_of_namespace(name, found)]
    ]
    if good:
        yield ok("namespaces", f"{named(good)}: present, pods that load drivers are allowed")


def _of_namespace(name: str, found: Json) -> Iterable[CheckResult]:
    metadata = found["metadata"]
    if "deletionTimestamp" in metadata:
        yield failed("namespaces", f"{name} is being deleted", "Wait until it is gone, and create it again")
    enforced = (metadata.get("labels") or {}).get(ENFORCED, "privileged")
    if enforced != "privileged":
        yield failed(
            "namespaces",
            f"{name} enforces Pod Security {printable(enforced, 63)}: it refuses the pods that load drivers",
            f"kubectl label namespace {name} --overwrite {ENFORCED}=privileged",
        )
