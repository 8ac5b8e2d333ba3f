"""What a plugin's pod has besides with profiles of shared GPUs: folders, flags, and a token of its own. Pure.

The kubelet brings changes of the profiles to the pod, so their content is no part of its template. A ConfigMap that is
gone is a failed profile, and not a pod that cannot start: the volume is optional.
"""

from collections.abc import Mapping
from typing import Any

from driver_builder.api.stage_settings import ProfileSettings

Json = dict[str, Any]

_PROFILES = "/etc/device-agent-profiles"
_USERS = "/var/lib/kubelet/pod-resources"
_TOKEN, _TOKEN_FOLDER = "token", "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3600
_DEFAULT_ACCOUNT = "default"


def with_profiles(pod: Json, profiles: ProfileSettings, *, has_token: bool) -> Json:
    """Return the spec of a plugin's pod, whose first container is the agent, with the profiles.

    ``has_token`` says whether the agent, and no other container, gets the token of ``profiles.account``.
    """
    agent, *others = pod["containers"]
    made = {
        **pod,
        "containers": [_agent(agent, profiles, has_token=has_token), *others],
        "volumes": [
            *pod["volumes"],
            {"name": "profiles", "configMap": {"name": profiles.config_map, "optional": True}},
            {"name": "pod-resources", "hostPath": {"path": _USERS}},
            *([_token_volume()] if has_token else ()),
        ],
    }
    return {**made, "serviceAccountName": profiles.account} if has_token else made


def has_token(pod: Mapping[str, Any]) -> bool:
    """Return whether the agent has a token by this spec of a pod, as the API server has it."""
    return any(volume.get("name") == _TOKEN for volume in pod.get("volumes") or ())


def without_account(pod: Json, known: Mapping[str, Any]) -> Json:
    """Return the spec of a pod that replaces the one that is ``known``: with the default account in place of another.

    An apply cannot take ``serviceAccountName`` away: the API server restores it from its old name, which it keeps.
    """
    is_left = bool(known.get("serviceAccountName")) and "serviceAccountName" not in pod
    return {**pod, "serviceAccountName": _DEFAULT_ACCOUNT} if is_left else pod


def _agent(agent: Json, profiles: ProfileSettings, *, has_token: bool) -> Json:
    default = [f"--default-profile={profiles.default}"] if profiles.default is not None else []
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    token = {"name": _TOKEN, "mountPath": _TOKEN_FOLDER, "readOnly": True}
    return {
        **agent,
        "args": [*agent["args"], f"--profiles={_PROFILES}", *default],
        "env": [*agent["env"], *([node] if has_token else ())],
        "volumeMounts": [
            *agent["volumeMounts"],
            {"name": "profiles", "mountPath": _PROFILES, "readOnly": True},
            {"name": "pod-resources", "mountPath": _USERS, "readOnly": True},
            *([token] if has_token else ()),
        ],
    }


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
