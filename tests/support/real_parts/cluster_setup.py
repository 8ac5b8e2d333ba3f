"""What the integration tests put into a cluster, and who they speak to it as."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from demo.deploy import ensure
from demo.patient import PatientClient
from device_agent.node.connect import connect_with_token
from kube_api import resources
from kube_api.client import Client
from kube_api.credentials import ServiceAccount
from kube_api.errors import Conflict, NotFound
from kube_api.resources import (
    DRIVER_CONTAINERS,
    NAMESPACES,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    SERVICE_ACCOUNTS,
)
from testbed.testbed import Testbed

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[3] / "deploy"
FIELD_MANAGER = "integration-test"
WAIT_SECONDS = 600.0


def documents(*paths: str) -> Iterator[Json]:
    """Read manifests of ``deploy/`` one by one."""
    for path in paths:
        yield from (item for item in yaml.safe_load_all((DEPLOY / path).read_text()) if item)


def path_of(obj: Json) -> str:
    """Return where an object lives."""
    resource, metadata = resources.of(obj), obj["metadata"]
    return resource.path(namespace=metadata.get("namespace"), name=metadata["name"])


def admin(ground: Testbed, *, timeout_seconds: float = 30.0) -> Client:
    """Connect as the administrator, as a user would with a kubeconfig."""
    return PatientClient.from_environment(str(ground.kubeconfig), timeout_seconds=timeout_seconds)


def connect_as_agent(ground: Testbed, account: str, folder: Path) -> Client:
    """Connect as device-agent does, with the files that a kubelet mounts. ``account``: NAMESPACE/NAME."""
    namespace, _, name = account.partition("/")
    path = SERVICE_ACCOUNTS.path(namespace=namespace, name=name, subresource="token")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    (folder / "token").write_text(admin(ground).create(path, asked)["status"]["token"])
    (folder / "ca.crt").write_bytes(Path(ground.ca_file).read_bytes())
    client = connect_with_token(pods_environment(ground), str(folder))
    assert client is not None
    return client


def pods_environment(ground: Testbed) -> dict[str, str]:
    """Return where a pod's environment says that the API server is."""
    server = urlsplit(ground.api_server)
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}


def install(client: Client) -> None:
    """Apply namespace, CRDs, and the accounts of both programs; workloads stay out, nothing could run them."""
    for obj in documents(
        "namespace.yaml",
        "crds/drivercontainers.yaml",
        "crds/nodefeaturerules.yaml",
        "crds/nodefeatures.yaml",
        "driver-builder/rbac.yaml",
        "nfd-worker/rbac.yaml",
        "nfd-worker/rules.yaml",
    ):
        ensure(client, obj, field_manager=FIELD_MANAGER)
    for resource in (DRIVER_CONTAINERS, NODE_FEATURE_RULES, NODE_FEATURES):
        _wait_until_served(client, resource)


def _wait_until_served(client: Client, resource: resources.Resource) -> None:
    """Wait until objects of a definition can be made: those of one that is new cannot at once."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            client.list(resource.path())
        except NotFound:
            assert time.monotonic() < end, f"{resource.plural} are not served"
            time.sleep(0.1)
        else:
            return


def make_namespace(client: Client, name: str) -> None:
    """Make a namespace unless it is there."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    client.apply(NAMESPACES.path(name=name), body, field_manager=FIELD_MANAGER)


def remove_namespace(client: Client, name: str) -> None:
    """Delete a namespace whose controller is gone, with drivers that nobody else lets go.

    A few namespaces that cannot end take a seventh of a processor, for as long as the API server lives: they are looked
    at again and again, each time with all kinds of objects.
    """
    for driver in client.list(DRIVER_CONTAINERS.path(namespace=name)).items:
        path = DRIVER_CONTAINERS.path(namespace=name, name=driver["metadata"]["name"])
        client.patch(path, {"metadata": {"finalizers": []}})
    client.delete(NAMESPACES.path(name=name))


def as_service_account(ground: Testbed, namespace: str, name: str, *, pod: Json | None = None) -> Client:
    """Connect as a pod of a service account would, with a token that the API server issues.

    ``pod``: the token is that pod's, and names its node where the API server does (from 1.30 on).
    """
    path = SERVICE_ACCOUNTS.path(namespace=namespace, name=name, subresource="token")
    request: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    of_pod = ""
    if pod is not None:
        metadata = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        request["spec"]["boundObjectRef"], of_pod = bound, f"-{metadata['name']}"
    token_file = ground.ca_file.with_name(f"token-{namespace}-{name}{of_pod}")
    token_file.write_text(admin(ground).create(path, request)["status"]["token"])
    account = ServiceAccount(ground.api_server, ca_file=str(ground.ca_file), token_file=str(token_file))
    return PatientClient(account.pooled())


def granting(kind: str, metadata: Json, rule: Json, account: str) -> list[Json]:
    """Make a Role or ClusterRole with one rule, and its binding to an account, NAMESPACE/NAME."""
    group = "rbac.authorization.k8s.io"
    namespace, _, name = account.partition("/")
    common = {"apiVersion": f"{group}/v1", "metadata": metadata}
    return [
        {**common, "kind": kind, "rules": [rule]},
        {
            **common,
            "kind": f"{kind}Binding",
            "roleRef": {"apiGroup": group, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def definition_in_place_of(resource: resources.Resource) -> Json:
    """Make a definition of a kind that older servers do not have: it takes any object of it, and checks none."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    why = {"api-approved.kubernetes.io": "unapproved, for a test on servers without the group"}
    return {
        "apiVersion": resources.CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": resources.CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": why},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }


def create_quietly(client: Client, path: str, body: Json) -> None:
    """Create an object unless it is there."""
    try:
        client.create(path, body)
    except Conflict:
        return
