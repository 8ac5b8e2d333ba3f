"""What somebody who took a service account's token would try first, and RBAC refuses on every server.

``tests/api/test_rbac.py`` sends these requests to a real API server; docs/security.md lists them. What only an
admission policy refuses is in :mod:`tests.support.forbidden_changes`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from driver_builder.builds.job.job_manifest import SERVICE_ACCOUNT
from kube_api.client import Client
from kube_api.connection import Connection, Response, Timeout
from kube_api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from tests.support.driver_builder import factories

Json = dict[str, Any]
Request = Callable[[Client], object]

NAMESPACE = "driverwright"
ELSEWHERE = "elsewhere"
SYSTEM = "kube-system"

POD: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
RULES: Json = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
EVICTION: Json = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p", "namespace": NAMESPACE}}
DONE: Json = {"status": {"succeeded": 1}}
TOKEN: Json = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {
    "name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}}}  # fmt: skip
REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
    namespaced=False,
)  # fmt: skip
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)


class _Impersonating:
    """A connection that asks to be somebody else."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        as_somebody = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
        return self._connection.send(method, path, body=body, headers={**headers, **as_somebody}, timeout=timeout)


def _as_master(client: Client) -> Client:
    return Client(_Impersonating(client._connection))


def _own_role(account: str, rules: Json) -> Request:
    return lambda c: c.patch(CLUSTER_ROLES.path(name=f"driverwright-{account}"), rules)


def _bound(account: str) -> Json:
    return {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }


def _of_everybody(account: str) -> dict[str, Request]:
    """Make the requests with which somebody would try to become more than this account."""
    return {
        "become cluster-admin": lambda c: c.create(CLUSTER_ROLE_BINDINGS.path(), _bound(account)),
        "add rules to its own ClusterRole": _own_role(account, RULES),
        "impersonate an administrator": lambda c: _as_master(c).list(SECRETS.path()),
        "read the Secrets of kube-system": lambda c: c.list(SECRETS.path(namespace=SYSTEM)),
        "create a Secret with a token": lambda c: c.create(SECRETS.path(namespace=SYSTEM), TOKEN),
        "issue tokens of other accounts": lambda c: c.create(
            SERVICE_ACCOUNTS.path(namespace=SYSTEM, name="default", subresource="token"), {"spec": {}}
        ),
        "issue tokens of its own": lambda c: c.create(
            SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=account, subresource="token"), {"spec": {}}
        ),
        "approve a certificate": lambda c: c.patch(REQUESTS.path(name="r", subresource="approval"), {"status": {}}),
        "request a certificate": lambda c: c.create(REQUESTS.path(), {"metadata": {"name": "r"}, "spec": {}}),
        "change every request by a webhook": lambda c: c.create(WEBHOOKS.path(), {"metadata": {"name": "w"}}),
        "create volumes of a node's files": lambda c: c.create(VOLUMES.path(), {"metadata": {"name": "v"}}),
        "evict pods": lambda c: c.create(PODS.path(namespace=NAMESPACE, name="p", subresource="eviction"), EVICTION),
        "create pods in kube-system": lambda c: c.create(PODS.path(namespace=SYSTEM), POD),
        "run commands by a node's kubelet": lambda c: c.create(
            f"{NODES.path(name='node-a', subresource='proxy')}/run/{NAMESPACE}/p/c", {}
        ),
        "delete all nodes": lambda c: c.delete(NODES.path()),
        "change NodeFeatureRules": lambda c: c.patch(NODE_FEATURE_RULES.path(name="r"), {"spec": {"rules": []}}),
        "create NodeFeatures": lambda c: c.create(NODE_FEATURES.path(namespace=NAMESPACE), {"metadata": {"name": "f"}}),
        "read the API server's flags and metrics": lambda c: list(c.follow("/metrics")),
    }


BUILDER_MUST_NOT: dict[str, Request] = {
    **_of_everybody("driver-builder"),
    "read one node whole": lambda c: c.get(NODES.path(name="node-a")),
    "create nodes": lambda c: c.create(NODES.path(), {"metadata": {"name": "evil"}}),
    "create nodes by applying": lambda c: c.apply(
        NODES.path(name="evil"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}},
        field_manager="driver-builder-node-features",
        force=False,
    ),
    "delete nodes": lambda c: c.delete(NODES.path(name="node-a")),
    "change a node's status": lambda c: c.patch(NODES.path(name="node-a", subresource="status"), {"status": {}}),
    "read ResourceClaims": lambda c: c.get(RESOURCE_CLAIMS.path(namespace=ELSEWHERE, name="gpu")),
    "list secrets": lambda c: c.list(SECRETS.path(namespace=NAMESPACE)),
    "list secrets everywhere": lambda c: c.list(SECRETS.path()),
    "read secrets elsewhere": lambda c: c.get(SECRETS.path(namespace=ELSEWHERE, name="thing")),
    "write secrets": lambda c: c.patch(SECRETS.path(namespace=NAMESPACE, name="thing"), {"data": {}}),
    "read config maps elsewhere": lambda c: c.get(CONFIG_MAPS.path(namespace=ELSEWHERE, name="thing")),
    "change config maps": lambda c: c.patch(CONFIG_MAPS.path(namespace=NAMESPACE, name="thing"), {"data": {}}),
    "replace config maps": lambda c: c.replace(
        CONFIG_MAPS.path(namespace=NAMESPACE, name="thing"), {"metadata": {"name": "thing"}}
    ),
    "create config maps elsewhere": lambda c: c.create(
        CONFIG_MAPS.path(namespace=ELSEWHERE), {"metadata": {"name": "new"}}
    ),
    "delete config maps elsewhere": lambda c: c.delete(CONFIG_MAPS.path(namespace=ELSEWHERE, name="thing")),
    "create pods elsewhere": lambda c: c.create(PODS.path(namespace=ELSEWHERE), POD),
    "change pods": lambda c: c.patch(PODS.path(namespace=NAMESPACE, name="p"), {"metadata": {"labels": {}}}),
    "exec into pods": lambda c: c.create(
        PODS.path(namespace=NAMESPACE, name="p", subresource="exec") + "?command=sh", {}
    ),
    "list pods elsewhere": lambda c: c.list(PODS.path(namespace=ELSEWHERE)),
    "delete pods elsewhere": lambda c: c.delete(PODS.path(namespace=ELSEWHERE, name="p")),
    "create DaemonSets elsewhere": lambda c: c.create(DAEMON_SETS.path(namespace=ELSEWHERE), {"metadata": {}}),
    "create Deployments": lambda c: c.create(DEPLOYMENTS.path(namespace=NAMESPACE), {"metadata": {"name": "d"}}),
    "create Jobs elsewhere": lambda c: c.create(JOBS.path(namespace=ELSEWHERE), {"metadata": {"name": "j"}}),
    "change Jobs": lambda c: c.patch(JOBS.path(namespace=NAMESPACE, name="j"), {"spec": {"suspend": True}}),
    "list Jobs": lambda c: c.list(JOBS.path(namespace=NAMESPACE)),
    "watch Jobs": lambda c: list(c.watch(JOBS.path(namespace=NAMESPACE), resource_version="0", seconds=1)),
    "replace Jobs": lambda c: c.replace(JOBS.path(namespace=NAMESPACE, name="j"), {"metadata": {"name": "j"}}),
    "delete all Jobs": lambda c: c.delete(JOBS.path(namespace=NAMESPACE)),
    "say that a Job is done": lambda c: c.patch(JOBS.path(namespace=NAMESPACE, name="j", subresource="status"), DONE),
    "create CronJobs": lambda c: c.create(CRON_JOBS.path(namespace=NAMESPACE), {"metadata": {"name": "c"}}),
    "change the account of build Jobs": lambda c: c.patch(
        SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=SERVICE_ACCOUNT), {"automountServiceAccountToken": True}
    ),
    "issue tokens of build Jobs": lambda c: c.create(
        SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=SERVICE_ACCOUNT, subresource="token"), {"spec": {}}
    ),
    "delete Jobs elsewhere": lambda c: c.delete(JOBS.path(namespace=ELSEWHERE, name="j")),
    "read logs elsewhere": lambda c: list(c.follow(PODS.path(namespace=ELSEWHERE, name="p", subresource="log"))),
    "create Roles": lambda c: c.create(ROLES.path(namespace=NAMESPACE), {"metadata": {"name": "r"}, **RULES}),
    "bind Roles": lambda c: c.create(ROLE_BINDINGS.path(namespace=NAMESPACE), {"metadata": {"name": "r"}}),
    "create ClusterRoles": lambda c: c.create(CLUSTER_ROLES.path(), {"metadata": {"name": "r"}, **RULES}),
    "change CRDs": lambda c: c.patch(
        CUSTOM_RESOURCE_DEFINITIONS.path(name="drivercontainers.driverwright.io"), {"metadata": {}}
    ),
    "create DriverContainers": lambda c: c.create(
        DRIVER_CONTAINERS.path(namespace=NAMESPACE), factories.driver_object("new", finalizer=False)
    ),
    "delete DriverContainers": lambda c: c.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac")),
    "read DriverContainers elsewhere": lambda c: c.list(DRIVER_CONTAINERS.path(namespace=ELSEWHERE)),
    "issue tokens": lambda c: c.create(
        SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name="nfd-worker", subresource="token"), {"spec": {}}
    ),
    "read NodeFeatures elsewhere": lambda c: c.list(NODE_FEATURES.path(namespace=ELSEWHERE)),
    "list namespaces": lambda c: c.list(NAMESPACES.path()),
    "read other namespaces": lambda c: c.get(NAMESPACES.path(name=ELSEWHERE)),
    "change its namespace": lambda c: c.patch(NAMESPACES.path(name=NAMESPACE), {"metadata": {"labels": {"x": "y"}}}),
    "take the Lease of somebody else": lambda c: c.replace(
        LEASES.path(namespace=NAMESPACE, name="other"), {"metadata": {"name": "other"}}
    ),
    "take Leases elsewhere": lambda c: c.create(LEASES.path(namespace=ELSEWHERE), {"metadata": {"name": "l"}}),
    "write Events elsewhere": lambda c: c.create(EVENTS.path(namespace=ELSEWHERE), {"metadata": {"name": "e"}}),
}

WORKER_MUST_NOT: dict[str, Request] = {
    **_of_everybody("nfd-worker"),
    "list nodes": lambda c: c.list(NODES.path()),
    "watch nodes": lambda c: list(c.watch(NODES.path(), resource_version="0", seconds=1)),
    "replace nodes": lambda c: c.replace(NODES.path(name="node-a"), {"metadata": {"name": "node-a"}}),
    "replace a node's status": lambda c: c.replace(
        NODES.path(name="node-a", subresource="status"), {"metadata": {"name": "node-a"}}
    ),
    "reach a node's kubelet": lambda c: c.get(NODES.path(name="node-a", subresource="proxy")),
    "create nodes by applying": lambda c: c.apply(
        NODES.path(name="evil"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}},
        field_manager="nfd-worker",
    ),
    "create nodes": lambda c: c.create(NODES.path(), {"metadata": {"name": "evil"}}),
    "delete nodes": lambda c: c.delete(NODES.path(name="node-a")),
    "list pods": lambda c: c.list(PODS.path(namespace=NAMESPACE)),
    "create pods": lambda c: c.create(PODS.path(namespace=NAMESPACE), POD),
    "change pods": lambda c: c.patch(PODS.path(namespace=NAMESPACE, name="p"), {"metadata": {"labels": {}}}),
    "delete pods": lambda c: c.delete(PODS.path(namespace=NAMESPACE, name="p")),
    "exec into pods": lambda c: c.create(
        PODS.path(namespace=NAMESPACE, name="p", subresource="exec") + "?command=sh", {}
    ),
    "write Events": lambda c: c.create(EVENTS.path(namespace=NAMESPACE), {"metadata": {"name": "e"}}),
    "list namespaces": lambda c: c.list(NAMESPACES.path()),
    "read secrets": lambda c: c.get(SECRETS.path(namespace=NAMESPACE, name="thing")),
    "list secrets": lambda c: c.list(SECRETS.path(namespace=NAMESPACE)),
    "read config maps": lambda c: c.get(CONFIG_MAPS.path(namespace=NAMESPACE, name="thing")),
    "list DriverContainers": lambda c: c.list(DRIVER_CONTAINERS.path(namespace=NAMESPACE)),
    "change DriverContainers": lambda c: c.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac"), {}),
    "create DaemonSets": lambda c: c.create(DAEMON_SETS.path(namespace=NAMESPACE), {"metadata": {"name": "d"}}),
    "create ClusterRoles": lambda c: c.create(CLUSTER_ROLES.path(), {"metadata": {"name": "r"}, **RULES}),
    "take Leases": lambda c: c.create(LEASES.path(namespace=NAMESPACE), {"metadata": {"name": "l"}}),
    "issue tokens": lambda c: c.create(
        SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name="driver-builder", subresource="token"), {"spec": {}}
    ),
}


BUILD_MUST_NOT: dict[str, Request] = {
    **_of_everybody(SERVICE_ACCOUNT),
    "read a Secret": lambda c: c.get(SECRETS.path(namespace=NAMESPACE, name="thing")),
    "list Secrets": lambda c: c.list(SECRETS.path(namespace=NAMESPACE)),
    "read a ConfigMap": lambda c: c.get(CONFIG_MAPS.path(namespace=NAMESPACE, name="thing")),
    "create Jobs": lambda c: c.create(JOBS.path(namespace=NAMESPACE), {"metadata": {"name": "j"}}),
    "delete Jobs": lambda c: c.delete(JOBS.path(namespace=NAMESPACE, name="j")),
    "read logs": lambda c: list(c.follow(PODS.path(namespace=NAMESPACE, name="p", subresource="log"))),
    "create ConfigMaps": lambda c: c.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "new"}}),
    "label a node": lambda c: c.patch(NODES.path(name="node-a"), {"metadata": {"labels": {"x": "y"}}}),
    "take Leases": lambda c: c.create(LEASES.path(namespace=NAMESPACE), {"metadata": {"name": "l"}}),
    "list pods": lambda c: c.list(PODS.path(namespace=NAMESPACE)),
    "create pods": lambda c: c.create(PODS.path(namespace=NAMESPACE), POD),
    "list nodes": lambda c: c.list(NODES.path()),
    "list DriverContainers": lambda c: c.list(DRIVER_CONTAINERS.path(namespace=NAMESPACE)),
    "write Events": lambda c: c.create(EVENTS.path(namespace=NAMESPACE), {"metadata": {"name": "e"}}),
}
