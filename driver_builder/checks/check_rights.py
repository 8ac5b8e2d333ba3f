"""Checks of what the controller's account may do: every rule of ``deploy/driver-builder/rbac.yaml``. Pure.

Those of ``drain.yaml`` are needed by drivers with ``spec.rollout.drain`` alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver_builder.base.check_result import CheckResult, failed, ok, unknown, warning
from driver_builder.checks.finding import MOST_NAMED, Unread, counted, named
from driver_builder.rollout import drain
from kube_api.resources import RESOURCE_CLAIMS

Json = dict[str, Any]

DRIVERS_ROLE = "driver-builder"
RULES_ROLE = "driver-builder-feature-rules"
NODE_FEATURES_ROLE = "driver-builder-node-features"
MANIFEST = "deploy/driver-builder/rbac.yaml"
_CHECK = "rights"
_LEASES = "coordination.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource; ``namespace`` is empty for the whole cluster, ``name`` for any object."""

    namespace: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    verb: str

    @property
    def is_for_claims(self) -> bool:
        """Return whether only drains that look at ResourceClaims need it."""
        return self.group == RESOURCE_CLAIMS.group

    @property
    def is_for_jobs(self) -> bool:
        """Return whether only builds in Jobs need it."""
        return self.group == "batch" or self.subresource == "log"

    def as_attributes(self) -> Json:
        """Write it as ``resourceAttributes`` of an access review."""
        fields = ("namespace", "verb", "group", "resource", "subresource", "name")
        return {field: value for field in fields if (value := getattr(self, field))}

    def __str__(self) -> str:
        """Write it as ``kubectl auth can-i`` takes it: ``get pods/log``."""
        group = f".{self.group}" if self.group else ""
        parts = "/".join(part for part in (self.resource + group, self.subresource or self.name) if part)
        return f"{self.verb} {parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a controller works: the first of the ``namespaces`` has its Lease.

    ``rules_namespace`` has the workers' ConfigMap; empty where NodeFeatureRules are not distributed.
    ``node_feature_namespaces`` have NodeFeatures that label nodes.
    """

    namespaces: tuple[str, ...]
    lease_name: str
    rules_namespace: str = ""
    node_feature_namespaces: tuple[str, ...] = ()
    uses_jobs: bool = False


def rights(manifest: Iterable[Json], scope: Scope) -> tuple[Right, ...]:
    """Return what a controller needs, by the Roles of the manifest."""
    needed = [right for role in manifest for right in _of_role(role, scope)]
    return tuple(dict.fromkeys(right for right in needed if scope.uses_jobs or not right.is_for_jobs))


def _of_role(role: Json, scope: Scope) -> Iterator[Right]:
    for namespace in _namespaces(role, scope):
        for rule in role.get("rules") or ():
            is_lease = rule["apiGroups"] == [_LEASES]
            if is_lease and namespace != scope.namespaces[0]:
                continue
            names = rule.get("resourceNames") or [""]
            names = [scope.lease_name if is_lease and name else name for name in names]
            for resource, _, subresource in (text.partition("/") for text in rule["resources"]):
                yield from (
                    Right(
                        namespace=namespace, group=rule["apiGroups"][0], resource=resource, subresource=subresource,
                        name=name, verb=verb,
                    )
                    for name in names
                    for verb in rule["verbs"]
                )  # fmt: skip


def _namespaces(role: Json, scope: Scope) -> tuple[str, ...]:
    metadata = role["metadata"]
    match role["kind"], metadata["name"]:
        case "ClusterRole", _:
            return ("",)
        case "Role", name if name == DRIVERS_ROLE:
            return scope.namespaces
        case "Role", name if name == RULES_ROLE:
            return (scope.rules_namespace,) if scope.rules_namespace else ()
        case "Role", name if name == NODE_FEATURES_ROLE:
            return scope.node_feature_namespaces
        case "Role", _:
            return (metadata["namespace"],)
    return ()


def check_rights(answers: Mapping[Right, bool | Unread], who: str) -> Iterator[CheckResult]:
    """Report what ``who`` may not do, place by place; one line where nothing is missing."""
    unread = {right: answer for right, answer in answers.items() if isinstance(answer, Unread)}
    refused = [right for right, answer in answers.items() if answer is False]
    if not refused and not unread:
        yield ok(_CHECK, f"{who} has all {counted(len(answers), 'permission')} of {MANIFEST}")
    for namespace in dict.fromkeys(right.namespace for right in refused):
        missing = [str(right) for right in refused if right.namespace == namespace]
        place = f"in namespace {namespace}" if namespace else "on the whole cluster"
        yield failed(
            _CHECK,
            f"{who} may not, {place}: {_listed(missing)}",
            f"kubectl apply -f {MANIFEST}"
            + ("; a further namespace needs its Role and RoleBinding as well" if namespace else ""),
        )
    if unread:
        first = next(iter(unread.values()))
        yield unknown(
            _CHECK,
            f"{counted(len(unread), 'permission')} of {who} could not be asked about: {first.message}",
            "Run doctor as an administrator of the cluster",
        )


def check_drain(answers: Mapping[Right, bool | Unread], who: str, drivers: Iterable[str]) -> CheckResult:
    """Report whether ``who`` may drain nodes, as ``spec.rollout.drain`` of these drivers asks.

    ``answers`` have rights to ResourceClaims only where one of them names ``draDrivers``.
    """
    only_claims = all(right.is_for_claims for right, answer in answers.items() if answer is False)
    lacks = "draDrivers see no pods" if only_claims else f"rollout.drain of {named(drivers)} drains nothing"
    reason = f"rollout.drain of {named(drivers)} asks"
    return check_optional(answers, who, "drain nodes", reason=reason, lacks=lacks, manifest=drain.MANIFEST)


def check_optional(
    answers: Mapping[Right, bool | Unread], who: str, what: str, *, reason: str, lacks: str, manifest: str
) -> CheckResult:
    """Report whether ``who`` has the rights, in all namespaces, that only some drivers need; why, says ``reason``."""
    refused = [str(right) for right, answer in answers.items() if answer is False]
    unread = next((answer for answer in answers.values() if isinstance(answer, Unread)), None)
    if refused:
        return warning(
            _CHECK,
            f"{who} may not, in all namespaces: {_listed(refused)}; {lacks}",
            f"kubectl apply -f {manifest}; another service account has to be named in its ClusterRoleBinding",
        )
    if unread is not None:
        words = f"whether {who} may {what} could not be asked: {unread.message}"
        return unknown(_CHECK, words, "Run doctor as an administrator of the cluster")
    return ok(_CHECK, f"{who} may {what}, as {reason}")


def _listed(missing: list[str]) -> str:
    """List more than other findings do: who corrects a Role needs all of them."""
    most = 3 * MOST_NAMED
    more = f", and {len(missing) - most} more" if len(missing) > most else ""
    return ", ".join(missing[:most]) + more
