"""Values of the Helm chart by what they switch on, and the objects that it renders of them."""

import functools
from typing import Any

from tests.support.yaml_files import read_documents
from tools import manifests
from tools.manifests import DEPLOY

Json = dict[str, Any]

POLICIES = ("nfd-worker", "driver-builder", "device-agent")
GPU: Json = {"gpu": {"enabled": True, "nodeSelector": {"gpu": "true"}}}
EVERYTHING: Json = {
    "imagePullSecrets": ["pull"],
    "registryCredentials": [{"name": "push", "registry": "r.example.com", "username": "u", "password": "p"}],
    "namespace": {"create": True},
    "nfdWorker": {**GPU, "env": {"A": "1"}, "args": ["--take-over"], "nodeSelector": {"a": "b"}},
    "driverBuilder": {
        "drain": True, "namespaces": ["team"], "builder": "docker",
        "nodeFeatures": {"namespaces": ["gpu-operator", "nfd"]},
        "engine": {"host": "tcp://engine:2376", "certSecret": "engine"},
        "registryCaConfigMap": "ca", "env": {"B": "2"}, "args": ["--max-builds=2"], "nodeSelector": {"c": "d"},
        "toolchains": False,
    },
    "deviceAgent": {"enabled": True, "env": {"C": "3"}, "args": ["--interval=5s"], "nodeSelector": {"e": "f"}},
    "networkPolicies": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Nodes"}},
    "admissionPolicies": {"enabled": True, "nfdWorker": (DEPLOY / "admission/nfd-worker.yaml").read_text()},
}  # fmt: skip
NVIDIA: Json = {
    "enabled": True,
    "driver": "gpus/nvidia",
    "migStrategy": "mixed",
    "libraries": {"path": "/run/nvidia/driver"},
    "disableHealthChecks": "13, 31",
}
AGENT: Json = {"enabled": True, "env": {"C": "3"}, "nodeSelector": {"e": "f"}}
PROFILES: Json = {"map": {"plain": "version: v1\n", "slice-4": "version: v1\nsharing: {}\n"}, "default": "plain"}
MIG: Json = {"enabled": True, "drain": True, "configMap": "layouts"}
SIDE_CAR: Json = {"sideCar": {"image": "docker.io/library/docker:29-dind"}}
ACCOUNTS = ["driverwright/gpu", "team/1", "team/gpu", "elsewhere/gpu"]
VALUES: dict[str, Json] = {
    "defaults": {},
    "everything": EVERYTHING,
    "engine": {"driverBuilder": {"builder": "docker"}},
    "side car": {"driverBuilder": {"builder": "docker", "engine": SIDE_CAR}},
    "runtime class": {"nfdWorker": {"gpu": {**GPU["gpu"], "runtimeClassName": "nvidia"}}},
    "nvidia": {"deviceAgent": {**AGENT, "nvidia": NVIDIA}},
    "nvidia of the nodes": {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True}}},
    "profiles": {"deviceAgent": {**AGENT, "nvidia": {**NVIDIA, "profiles": PROFILES}}},
    "profiles without a token": {
        "deviceAgent": {**AGENT, "nvidia": {**NVIDIA, "profiles": {"name": "shared", "followNodeLabel": False}}}
    },
    "MIG": {"deviceAgent": {**AGENT, "nvidia": {**NVIDIA, "mig": MIG}}},
    "MIG and profiles": {"deviceAgent": {**AGENT, "nvidia": {**NVIDIA, "mig": MIG, "profiles": PROFILES}}},
    "exporter": {
        "deviceAgent": {
            **AGENT,
            "exporter": {
                "enabled": True,
                "port": 9401,
                "hostnameLabel": "node",
                "service": {"annotations": {"a": "b"}},
                "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            },
        },
        "driverBuilder": {"namespaces": ["team"]},
        "networkPolicies": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "exporters of drivers": {"deviceAgent": {"exporter": {"podMonitor": {"enabled": True}}}},
    "exporter by pods": {"deviceAgent": {"enabled": True, "exporter": {"enabled": True, "perPod": True}}},
    "exporter and limits": {
        "deviceAgent": {
            **AGENT,
            "nvidia": {**NVIDIA, "profiles": PROFILES},
            "exporter": {"enabled": True},
            "memory": {"mode": "driver", "limits": {"nvidia.com/gpu": "10Gi", "example.com/a": 10737418240}},
        },
    },
    "worker only": {"driverBuilder": {"enabled": False}},
    "controller only": {"nfdWorker": {"enabled": False}},
    "nobody's labels": {"driverBuilder": {"nodeFeatures": {"enabled": False}}},
    "accounts": {"driverBuilder": {"namespaces": ["team"], "deviceAgentAccounts": ACCOUNTS}},
    "drains for agents": {
        "driverBuilder": {
            "drain": True,
            "agentDrains": {
                "resources": ["nvidia.com/gpu*", "nvidia.com/mig-*"],
                "daemonSets": ["driverwright/device-agent"],
            },
        },
    },
    "dra": {
        "driverBuilder": {
            "namespaces": ["team"],
            "deviceAgentAccounts": ["team/gpu"],
            "draDriverAccounts": ["driverwright/dra", "team/gpu"],
        }
    },
}


@functools.cache
def rendered(of: str, namespace: str = "driverwright") -> list[Json]:
    """Render the objects of an entry of VALUES."""
    return objects(VALUES[of], namespace)


def objects(values: Json, namespace: str = "driverwright") -> list[Json]:
    """Render objects."""
    texts = manifests.render(values, namespace=namespace)
    return [item for name, text in sorted(texts.items()) if name.endswith(".yaml") for item in read_documents(text)]


def one(found: list[Json], kind: str, name: str) -> Json:
    """Return the only object of that kind and name."""
    (item,) = [item for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return item


def pod(found: list[Json], name: str) -> Json:
    """Return the pod's spec of a workload."""
    (item,) = [
        item for item in found if item["kind"] in ("Deployment", "DaemonSet") and item["metadata"]["name"] == name
    ]
    spec: Json = item["spec"]["template"]["spec"]
    return spec


def container(found: list[Json], name: str) -> Json:
    """Return the program's container of a workload; only an engine, or NVIDIA's library, stands beside one."""
    first, *others = pod(found, name)["containers"]
    assert [item["name"] for item in others] in ([], ["engine"], ["nvml"])
    return dict(first)


def environment(found: list[Json], name: str) -> dict[str, str]:
    """Return the variables of a workload that have a value."""
    return {item["name"]: item["value"] for item in container(found, name).get("env", ()) if "value" in item}
