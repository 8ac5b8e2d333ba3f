"""The token of a plugin's pod: a service account, and a volume that the agent alone has. Pure."""

from collections.abc import Mapping
from typing import Any

from driver_builder.objects.pod_parts import NODE_NAME, with_agent

Json = dict[str, Any]

_TOKEN, _TOKEN_FOLDER = "token", "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3600
_DEFAULT_ACCOUNT = "default"


def with_token(pod: Json, account: str) -> Json:
    """Return the spec of a plugin's pod whose agent, and no other container, has the token of a service account."""
    made = with_agent(
        pod,
        env=[NODE_NAME],
        mounts=[{"name": _TOKEN, "mountPath": _TOKEN_FOLDER, "readOnly": True}],
        volumes=[_token_volume()],
    )
    return {**made, "serviceAccountName": account}


def has_token(pod: Mapping[str, Any]) -> bool:
    """Return whether the agent has a token by this spec of a pod, as the API server has it."""
    return has_volume(pod, _TOKEN)


def has_volume(pod: Mapping[str, Any], name: str) -> bool:
    """Return whether this spec of a pod, as the API server has it, has a volume of this name."""
    return any(volume.get("name") == name for volume in pod.get("volumes") or ())


def without_account(pod: Json, known: Mapping[str, Any]) -> Json:
    """Return the spec of a pod that replaces the one that is ``known``: with the default account in place of another.

    An apply cannot take ``serviceAccountName`` away: the API server restores it from its old name, which it keeps.
    """
    is_left = bool(known.get("serviceAccountName")) and "serviceAccountName" not in pod
    return {**pod, "serviceAccountName": _DEFAULT_ACCOUNT} if is_left else pod


def _token_volume() -> Json:
    """Build what Kubernetes mounts as well where a pod gets a token in all of its containers."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": authority},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": _TOKEN, "projected": {"sources": sources}}
