"""Parts that several features of a plugin's pod need: each is there once, whoever asks for it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

_USERS = "/var/lib/kubelet/pod-resources"
NODE_NAME: Json = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
"""The agent's variable with the name of its Node."""


def with_agent(
    pod: Json,
    *,
    args: Sequence[str] = (),
    env: Iterable[Json] = (),
    mounts: Iterable[Json] = (),
    volumes: Iterable[Json] = (),
) -> Json:
    """Return the spec of a pod whose first container, the agent, has these besides, and the pod these volumes.

    What has a name that is there already stays as it is.
    """
    agent, *others = pod["containers"]
    more = {
        **agent,
        "args": [*agent["args"], *args],
        "env": with_named(agent["env"], env),
        "volumeMounts": with_named(agent["volumeMounts"], mounts),
    }
    return {**pod, "containers": [more, *others], "volumes": with_named(pod["volumes"], volumes)}


def with_config_map(pod: Json, name: str, config_map: str, folder: str, *args: str) -> Json:
    """Return the spec of a pod whose agent has a ConfigMap mounted, and flags that say so.

    The kubelet brings changes of it to the pod, so its content is no part of the template. One that is gone is a
    mistake that the agent reports, and not a pod that cannot start: the volume is optional.
    """
    return with_agent(
        pod,
        args=args,
        mounts=[{"name": name, "mountPath": folder, "readOnly": True}],
        volumes=[{"name": name, "configMap": {"name": config_map, "optional": True}}],
    )


def with_users(pod: Json) -> Json:
    """Return the spec of a pod whose agent sees which container has which device."""
    return with_agent(
        pod,
        mounts=[{"name": "pod-resources", "mountPath": _USERS, "readOnly": True}],
        volumes=[{"name": "pod-resources", "hostPath": {"path": _USERS}}],
    )


def with_named(there: Iterable[Json], more: Iterable[Json]) -> list[Json]:
    """Add items to a list whose items have names; one whose name is there is left out."""
    found = list(there)
    names = {item["name"] for item in found}
    return [*found, *(item for item in more if item["name"] not in names)]
