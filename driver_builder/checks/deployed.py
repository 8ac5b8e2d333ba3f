"""How the controller is set up, as its Deployment says: arguments, variables and images. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

DEPLOYMENT, WORKERS = "driver-builder", "nfd-worker"
"""Names of the Deployment, and of the workers' DaemonSet; their pods have them as NAME_LABEL."""
NAME_LABEL = "app.kubernetes.io/name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the container runs: the arguments after ``run``, and the variables whose values the Deployment has."""

    image: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def command_of(deployment: Json) -> Command:
    """Read what the container of the program runs."""
    container = container_of(deployment, DEPLOYMENT)
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    arguments = words[words.index("run") + 1 :] if "run" in words else []
    environment = {
        str(item["name"]): str(item["value"])
        for item in container.get("env") or ()
        if isinstance(item.get("value"), str)
    }
    return Command(
        image=str(container.get("image", "")),
        arguments=tuple(arguments),
        environment={**environment, "POD_NAMESPACE": str(deployment["metadata"]["namespace"])},
    )


def container_of(workload: Json, name: str) -> Json:
    """Return the container of that name in a pod template, else the first one."""
    containers = workload["spec"]["template"]["spec"].get("containers") or [{}]
    found: Json = next((item for item in containers if item.get("name") == name), containers[0])
    return found
