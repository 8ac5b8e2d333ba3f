"""What a plugin's pod has besides where our agent shows the use of devices, or limits it. Pure.

The exporter's port is one of the pod and not of the node, where each driver has an agent: such a pod has a network of
its own, and the kubelet asks it by HTTP. Who uses a device is known of podresources; how much of it a pod uses, of the
node's processes, which the container ``nvml`` alone sees into.
"""

from typing import Any

from driver_builder.api.stage_settings import UseSettings
from driver_builder.api.use_stage import OWN_PORT
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.pod_parts import NODE_NAME, with_agent, with_named, with_users
from kube_api.names import GROUP

Json = dict[str, Any]

EXPORTER_LABEL = f"{GROUP}/exporter"
"""On pods with the exporter, and on nothing else: by it a Service and a PodMonitor select them."""
EXPORTER_PORT = "exporter"

_POD_LOGS = "/var/log/pods"
_CGROUPS = "/sys/fs/cgroup"
STATE = "/var/lib/driverwright-agent"
"""Where an agent keeps what has to survive it."""
_ENDS_PROCESSES = "--ends-processes=true"
"""Without it ``nvml`` refuses to: a limit that is not kept, or only tried, needs nobody who can."""


def state_of(driver: DriverKey) -> tuple[Json, Json]:
    """Build mount and volume for what was given, of which limits of memory are made, where nothing else needs that.

    ``driver``: its key. A node may have agents of several drivers, and each writes all that it knows.
    """
    folder = {"path": f"{STATE}/drivers/{driver}", "type": "DirectoryOrCreate"}
    return {"name": "state", "mountPath": STATE}, {"name": "state", "hostPath": folder}


def labels(use: UseSettings | None) -> dict[str, str]:
    """Return what the pods are labelled with besides; the selector of their DaemonSet has none of it."""
    return {EXPORTER_LABEL: "true"} if use is not None and use.port is not None else {}


def with_use(pod: Json, use: UseSettings) -> Json:
    """Return the spec of a plugin's pod with what the use of devices needs.

    Its first container is the agent, the second one, where there is one, ``nvml``.
    """
    seeing = with_users(with_agent(pod, env=[NODE_NAME]))
    agent, *others = seeing["containers"]
    made = {
        **seeing,
        "containers": [_agent(agent, use), *(_nvml(container, use) for container in others)],
        "volumes": with_named(seeing["volumes"], _volumes(use)),
    }
    if use.port is not None:
        del made["hostNetwork"]
    return {**made, "hostPID": True} if use.sees_processes else made


def _agent(agent: Json, use: UseSettings) -> Json:
    """Let it answer on ports of the pod."""
    if use.port is None:
        return agent
    ports = {"http": OWN_PORT, EXPORTER_PORT: use.port}
    return {
        **agent,
        "args": [f"--port={OWN_PORT}" if word == "--port=0" else word for word in agent["args"]],
        "ports": [{"name": name, "containerPort": number} for name, number in ports.items()],
        **{name: _over_http(probe) for name, probe in agent.items() if name.endswith("Probe")},
    }


def _over_http(probe: Json) -> Json:
    """Ask for the same page by the pod's port: no process has to start for that."""
    asked = {key: value for key, value in probe.items() if key != "exec"}
    return {"httpGet": {"path": probe["exec"]["command"][-1], "port": "http"}, **asked}


def _nvml(container: Json, use: UseSettings) -> Json:
    """Let it find the pod of a process by the names of folders, and keep limits of memory where that is asked for."""
    mounts: list[Json] = []
    if use.sees_processes:
        mounts.append({"name": "pod-logs", "mountPath": f"/host{_POD_LOGS}", "readOnly": True})
    if use.writes_cgroups:
        mounts.append({"name": "cgroups", "mountPath": f"/host{_CGROUPS}"})
    args = [*container["args"], *([_ENDS_PROCESSES] if use.ends_processes else [])]
    return {**container, "args": args, "volumeMounts": [*container["volumeMounts"], *mounts]}


def _volumes(use: UseSettings) -> list[Json]:
    made = {"pod-logs": _POD_LOGS} if use.sees_processes else {}
    made |= {"cgroups": _CGROUPS} if use.writes_cgroups else {}
    return [{"name": name, "hostPath": {"path": path}} for name, path in made.items()]
