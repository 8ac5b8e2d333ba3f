"""The Helm chart renders the manifests of ``deploy/``, and nothing that Kubernetes or Pod Security refuses."""

import base64
import functools
import itertools
import json
import re
import tomllib
from typing import Any

import helm_python as helm
import pytest

from demo.deploy import ENGINE_PATCH, patched
from device_resources.exporter import exporter_schema
from device_resources.memory_limits import memory_schema
from device_resources.nvidia import MigStrategy, NvidiaSettings, nvidia_schema, parse_nvidia
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.registry.credentials import Credentials, parse_docker_config
from nfd_worker.sources.gpu import SHARING_FILE
from tests.support.yaml_files import read_documents, read_yaml
from tools import manifests
from tools.manifests import CHART, DEPLOY

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


# ---------------------------------------------------------------- the chart and deploy/


def test_the_manifests_are_what_the_chart_renders() -> None:
    """``make manifests`` would change nothing."""
    old = [str(path) for path, text in manifests.files().items() if not path.exists() or path.read_text() != text]
    assert not old, "edit the template, or what the chart has a copy of, then: make manifests"


def test_every_manifest_is_rendered() -> None:
    """By hand are patches, definitions and the lists of kustomize alone; a command prints the policies."""
    by_hand = {
        "kustomization.yaml",
        *(path.name for part in ("patches", "crds", "admission") for path in (DEPLOY / part).iterdir()),
    }
    found = {path for path in DEPLOY.rglob("*.yaml") if CHART not in path.parents and path.name not in by_hand}
    assert found == {path for path in manifests.files() if CHART not in path.parents}


def test_the_defaults_are_the_base_of_kustomize() -> None:
    """But for the namespace, in which Helm has its release, and the definitions, which are not Helm's to delete."""
    base = read_yaml((DEPLOY / "kustomization.yaml").read_text())["resources"]
    files = [name for name in base if not name.startswith(("namespace", "crds/"))]
    assert sorted(files) == sorted(name for name in manifests.render() if name.endswith(".yaml"))
    assert {path.name for path in (CHART / "crds").iterdir()} == {"drivercontainers.yaml"}


def test_the_chart_has_the_version_of_the_programs() -> None:
    """Chart and programs are released together."""
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = read_yaml((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    """Beside an icon that it recommends."""
    found = helm.lint(CHART, {}, strict=True)
    assert [item["error"] for item in found["messages"]] == ["icon is recommended"]


# ---------------------------------------------------------------- the schema


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_schema_accepts(values: Json) -> None:
    """What the other tests render, and what Helm adds to a chart that another one depends on."""
    assert manifests.render({**values, "global": {"x": 1}})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"nfdworker": {}}, "nfdworker"),
        ({"nfdWorker": {"tolerations": [{"effekt": "NoSchedule"}]}}, "effekt"),
        ({"nfdWorker": {"resources": {"limit": {}}}}, "limit"),
        ({"nfdWorker": {"resources": {"limits": {"memory": "lots"}}}}, "memory"),
        ({"nfdWorker": {"port": 70000}}, "port"),
        ({"nfdWorker": {"port": "9809"}}, "port"),
        ({"nfdWorker": {"maxUnavailable": "some"}}, "maxUnavailable"),
        ({"nfdWorker": {"args": ["take-over"]}}, "args"),
        ({"nfdWorker": {"env": {"A": 1}}}, "env"),
        ({"nfdWorker": {"config": {"core": {}}}}, "config"),
        ({"nfdWorker": {"gpu": {"enabled": True}}}, "nodeSelector"),
        ({"nfdWorker": {"gpu": {"enabled": True, "nodeSelector": {"a": "b", "c": "d"}}}}, "nodeSelector"),
        ({"driverBuilder": {"builder": "podman"}}, "builder"),
        ({"driverBuilder": {"engine": {"host": "/run/docker.sock"}}}, "host"),
        ({"driverBuilder": {"engine": {"sideCar": {"image": "docker:dind "}}}}, "image"),
        ({"driverBuilder": {"engine": {"host": "ssh://root@engine"}}}, "host"),  # its key would need a mount
        ({"driverBuilder": {"namespaces": ["Team"]}}, "namespaces"),
        ({"driverBuilder": {"namespaces": ["a", "a"]}}, "namespaces"),
        ({"driverBuilder": {"nodeFeatures": {"namespaces": ["GPU"]}}}, "namespaces"),
        ({"driverBuilder": {"nodeFeatures": {"namespaces": "gpu-operator"}}}, "namespaces"),
        ({"driverBuilder": {"nodeFeatures": {"enabled": "no"}}}, "enabled"),
        ({"driverBuilder": {"deviceAgentAccounts": ["gpu"]}}, "deviceAgentAccounts"),
        ({"driverBuilder": {"deviceAgentAccounts": "a/b"}}, "deviceAgentAccounts"),
        ({"driverBuilder": {"agentDrains": {"resources": ["gpu"]}}}, "resources"),
        ({"driverBuilder": {"agentDrains": {"resources": ["nvidia.com/*gpu"]}}}, "resources"),
        ({"driverBuilder": {"agentDrains": {"daemonSets": ["agent"]}}}, "daemonSets"),
        ({"driverBuilder": {"draDriverAccounts": ["dra"]}}, "draDriverAccounts"),
        ({"driverBuilder": {"workSize": "20 GB"}}, "workSize"),
        ({"images": {"repository": "r.example.com/x/"}}, "repository"),
        ({"images": {"tag": 1.3}}, "tag"),
        ({"images": {"loader": "r.example.com/x@sha256:1"}}, "loader"),
        ({"images": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"imagePullSecrets": [{"name": "pull"}]}, "imagePullSecrets"),
        ({"registryCredentials": [{"name": "push", "registry": "r", "username": "u"}]}, "password"),
        ({"podMonitor": {"interval": "often"}}, "interval"),
        ({"prometheusRule": {"for": {"NodesWithoutDriver": "long"}}}, "NodesWithoutDriver"),
        ({"dashboard": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard"),
        ({"networkPolicies": {"from": {"namespaceSelector": {}}}}, "from"),
        ({"admissionPolicies": {"enabled": "yes"}}, "enabled"),
        ({"deviceAgent": {"nvidia": {"enabled": True}}}, "enabled"),  # no agent, no devices
        ({"deviceAgent": {"nvidia": {"driver": "nvidia"}}}, "driver"),
        ({"deviceAgent": {"nvidia": {"driver": "Gpus/nvidia"}}}, "driver"),
        ({"deviceAgent": {"nvidia": {"migStrategy": "all"}}}, "migStrategy"),
        ({"deviceAgent": {"nvidia": {"libraries": {"path": "/opt"}}}}, "path"),
        ({"deviceAgent": {"nvidia": {"health": {"holdSeconds": 0}}}}, "holdSeconds"),
        ({"deviceAgent": {"nvidia": {"disableHealthChecks": [13]}}}, "disableHealthChecks"),
        ({"deviceAgent": {"nvidia": {"enableHealthChecks": "none"}}}, "enableHealthChecks"),
        ({"deviceAgent": {"exporter": {"enabled": True}}}, "enabled"),  # no agent, no exporter
        ({"deviceAgent": {"exporter": {"perpod": True}}}, "perpod"),
        ({"deviceAgent": {"exporter": {"port": 8080}}}, "port"),  # the agent's own
        ({"deviceAgent": {"exporter": {"hostnameLabel": "node-name"}}}, "hostnameLabel"),
        ({"deviceAgent": {"exporter": {"podMonitor": {"interval": "often"}}}}, "interval"),
        ({"deviceAgent": {"memory": {"mode": "watch"}}}, "enabled"),
        ({"deviceAgent": {"memory": {"mode": True}}}, "mode"),  # a bare "on"
        ({"deviceAgent": {"memory": {"limits": {"a/b": "ten"}}}}, "a~1b"),
        ({"deviceAgent": {"memory": {"graceSeconds": 0}}}, "graceSeconds"),
        ({"deviceAgent": {"nvidia": {"profiles": {"configMap": "x"}}}}, "configMap"),
        ({"deviceAgent": {"nvidia": {"profiles": {"name": "Shared"}}}}, "name"),
        ({"deviceAgent": {"nvidia": {"profiles": {"map": {"a": {"version": "v1"}}}}}}, "map"),  # not as text
        ({"deviceAgent": {"nvidia": {"profiles": {"map": {"a": ""}}}}}, "map"),
        ({"deviceAgent": {"nvidia": {"profiles": {"map": {"a b": "x"}}}}}, "a b"),
        ({"deviceAgent": {"nvidia": {"profiles": {"map": {"a" * 64: "x"}}}}}, "a" * 64),  # no label is so long
        ({"deviceAgent": {"nvidia": {"profiles": {"default": "a/b"}}}}, "default"),
        ({"deviceAgent": {"nvidia": {"profiles": {"followNodeLabel": "yes"}}}}, "followNodeLabel"),
        ({"deviceAgent": {"nvidia": {"mig": {"enabled": "yes"}}}}, "enabled"),
        ({"deviceAgent": {"nvidia": {"mig": {"configMap": "Layouts"}}}}, "configMap"),
        ({"deviceAgent": {"nvidia": {"mig": {"name": "layouts"}}}}, "name"),
    ],
    ids=str,
)  # fmt: skip
def test_the_schema_refuses(values: Json, word: str) -> None:
    """Unknown keys at every depth and values without a meaning; the message names the key."""
    with pytest.raises(helm.HelmValuesError, match=word):
        manifests.render(values)


@pytest.mark.parametrize(
    "image",
    [
        "x",
        "r.example.com:5000/a/b",
        "r.example.com:5000/a/b:1.0",
        f"a/b@sha256:{'0' * 64}",
        f"r:5000/b:1@sha256:{'0' * 64}",
    ],
)
def test_an_image_is_a_reference_with_a_tag_or_a_digest(image: str) -> None:
    """As it is written, whatever repository and tag of the others are."""
    found = objects({"images": {"nfdWorker": image, "tag": "2"}})
    assert container(found, "nfd-worker")["image"] == image
    assert container(found, "driver-builder")["image"] == "driverwright/driver-builder:2"


@pytest.mark.parametrize(
    "values",
    [
        {"driverBuilder": {"deviceAgentAccounts": None}},
        {"driverBuilder": {"draDriverAccounts": None}},
        {"driverBuilder": {"agentDrains": None}},
        {"deviceAgent": {"nvidia": {"mig": None}}},
    ],
    ids=str,
)
def test_values_of_an_earlier_version_are_enough(values: Json) -> None:
    """With ``--reuse-values`` an upgrade has none of the keys that are new."""
    assert manifests.render(values) == manifests.render()


# ---------------------------------------------------------------- what every rendering has to be


@pytest.mark.parametrize("of", VALUES)
def test_no_object_is_there_twice_and_names_are_short(of: str) -> None:
    """Names fit into labels; labels into what Kubernetes allows."""
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in rendered(of)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for _, _, name in names)


PODS = [
    (of, item["metadata"]["name"])
    for of in VALUES
    for item in rendered(of)
    if item["kind"] in ("Deployment", "DaemonSet")
]


@pytest.mark.parametrize(("of", "name"), PODS, ids=lambda value: value.replace(" ", "-"))
def test_no_pod_lacks_what_a_cluster_expects(of: str, name: str) -> None:
    """Tolerations, priority, seccomp, probes, a limit of memory; privileges for GPUs without a runtime alone."""
    found, spec = container(rendered(of), name), pod(rendered(of), name)
    assert spec["tolerations"]
    assert spec["priorityClassName"].startswith("system-")
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"livenessProbe", "readinessProbe"} <= found.keys()
    # A start takes a while on a busy node, and is no reason to end the container.
    assert found["startupProbe"]["periodSeconds"] * found["startupProbe"]["failureThreshold"] >= 120
    assert found["resources"]["requests"].keys() == {"cpu", "memory"}
    assert found["resources"]["limits"]["memory"]
    context = found["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    if (of, name) == ("everything", "nfd-worker-gpu"):
        assert context["privileged"] is True
    else:
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert not context.get("privileged")


def level(spec: Json) -> str:
    """Return the Pod Security level that a pod's spec meets, of those fields that ours have."""
    contexts = [{**spec["securityContext"], **item["securityContext"]} for item in spec["containers"]]
    if any("hostPath" in volume for volume in spec["volumes"]) or any(item.get("privileged") for item in contexts):
        return "privileged"
    is_restricted = all(
        item.get("runAsNonRoot") is True
        and item["seccompProfile"] == {"type": "RuntimeDefault"}
        and item["allowPrivilegeEscalation"] is False
        and item["capabilities"] == {"drop": ["ALL"]}
        for item in contexts
    )
    return "restricted" if is_restricted else "baseline"


def test_the_page_says_which_level_of_pod_security_each_pod_meets() -> None:
    """The table of docs/install.md; the controller alone is stricter than the namespace."""
    page = (DEPLOY.parent / "docs/install.md").read_text()
    rows = dict(re.findall(r"^[|] ([^|]+) [|] `(\w+)` [|]", page, re.MULTILINE))
    of_engines = rows["driver-builder with the socket of a node's engine, or with an engine as a side car"]
    assert level(pod(rendered("defaults"), "driver-builder")) == rows["driver-builder"] == "restricted"
    assert {level(pod(rendered(of), "driver-builder")) for of in ("engine", "side car")} == {of_engines}
    assert level(pod(rendered("everything"), "driver-builder")) == rows["driver-builder"]  # an engine elsewhere
    found = rendered("everything")
    assert {level(pod(found, name)) for name in ("nfd-worker", "device-agent")} == {rows["nfd-worker, device-agent"]}
    assert level(pod(found, "nfd-worker-gpu")) == rows["nfd-worker-gpu without a RuntimeClass"]


@pytest.mark.parametrize("name", ["nfd-worker", "driver-builder", "device-agent"])
def test_an_image_runs_as_its_manifest_says(name: str) -> None:
    """Not as root, but for the agent, which writes to the kubelet's folder; docs/security.md has the same users."""
    users = re.findall(r"^USER (.*)$", (DEPLOY.parent / "dockerfiles" / name / "Dockerfile").read_text(), re.MULTILINE)
    found = rendered("everything")
    context = {**pod(found, name)["securityContext"], **container(found, name)["securityContext"]}
    assert (users or ["0:0"]) == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context.get("runAsNonRoot", False) is bool(users)
    page = (DEPLOY.parent / "docs/security.md").read_text()
    rows = dict(re.findall(r"^[|] ([\w-]+) [|] (65534|root) [|]", page, re.MULTILINE))
    assert rows[name] == ("65534" if users else "root")


def test_who_uses_a_socket_is_root() -> None:
    """Of a node's engine and of a side car's; nobody else is."""
    users = {
        of: pod(rendered(of), "driver-builder")["securityContext"]["runAsUser"] for of in VALUES if of != "worker only"
    }
    assert {of for of, user in users.items() if user == 0} == {"engine", "side car"}


def test_the_controller_leaves_a_node_that_does_not_respond() -> None:
    """It tolerates no taint that evicts, unlike the pods that belong to a node."""
    assert {item["effect"] for item in pod(rendered("defaults"), "driver-builder")["tolerations"]} == {"NoSchedule"}


@pytest.mark.parametrize("of", VALUES)
def test_every_object_is_in_the_namespace_of_the_release(of: str) -> None:
    """But for the Role for Events and those of further namespaces; no other name is left over."""
    elsewhere = [
        item for item in rendered(of, "elsewhere") if item["metadata"].get("namespace", "elsewhere") != "elsewhere"
    ]
    assert {(item["kind"], item["metadata"]["namespace"]) for item in elsewhere} <= {
        ("Role", "default"), ("RoleBinding", "default"),
        ("Role", "team"), ("RoleBinding", "team"), ("ServiceAccount", "team"),
        *itertools.product(("Role", "RoleBinding"), ("gpu-operator", "nfd")),
    }  # fmt: skip
    subjects = itertools.chain(*(item.get("subjects", ()) for item in rendered(of, "elsewhere")))
    assert {item["namespace"] for item in subjects} == {"elsewhere"}


# ---------------------------------------------------------------- options


def test_jobs_build_unless_an_engine_is_asked_for() -> None:
    """The controller's pod is what Pod Security calls restricted then, on any node."""
    spec, variables = pod(rendered("defaults"), "driver-builder"), environment(rendered("defaults"), "driver-builder")
    assert "nodeSelector" not in spec
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 65534)
    assert variables["DRIVER_BUILDER_BUILDER"] == "job"
    assert "DOCKER_HOST" not in variables


def test_the_patch_for_an_engine_makes_what_the_value_makes() -> None:
    """For those who use the manifests."""
    (patch,) = read_documents(ENGINE_PATCH.read_text())
    deployment = one(rendered("defaults"), "Deployment", "driver-builder")
    assert by_name(patched(deployment, patch)) == by_name(one(rendered("engine"), "Deployment", "driver-builder"))


def test_an_engine_beside_the_controller_is_reached_by_a_socket_that_both_have() -> None:
    """On any node, without a path of it, and by no port; the engine's container alone is privileged."""
    spec = pod(rendered("side car"), "driver-builder")
    program, engine = spec["containers"]
    (shared,) = [mount for mount in program["volumeMounts"] if mount in engine["volumeMounts"]]
    assert (
        environment(rendered("side car"), "driver-builder")["DOCKER_HOST"]
        == f"unix://{shared['mountPath']}/docker.sock"
    )
    assert engine["args"] == ["dockerd", f"--host=unix://{shared['mountPath']}/docker.sock"]
    assert [item["securityContext"].get("privileged") for item in (program, engine)] == [None, True]
    assert engine["resources"]["limits"]["memory"]
    assert "nodeSelector" not in spec
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert all(volume["emptyDir"].get("sizeLimit") for volume in spec["volumes"] if volume["name"] != shared["name"])


def by_name(value: Any) -> Any:
    """Write lists whose items have names as objects: their order says nothing."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {item.get("mountPath") or item.get("name") or str(item): by_name(item) for item in value}
    return {name: by_name(item) for name, item in value.items()} if isinstance(value, dict) else value


def test_a_remote_engine_needs_certificates_and_no_node() -> None:
    """Nor a socket; the flag for certificates names the folder of the Secret."""
    found = rendered("everything")
    spec, variables = pod(found, "driver-builder"), environment(found, "driver-builder")
    assert variables["DOCKER_HOST"] == "tcp://engine:2376"
    assert spec["nodeSelector"] == {"c": "d"}
    assert {name for volume in spec["volumes"] for name in volume} == {"name", "emptyDir", "secret", "configMap"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(found, "driver-builder")["volumeMounts"]}
    assert variables["DRIVER_BUILDER_DOCKER_CERT_PATH"] == mounts["engine-certificates"]
    assert variables["DRIVER_BUILDER_REGISTRY_CA_FILE"] == f"{mounts['registry-ca']}/ca.crt"


@pytest.mark.parametrize(
    "engine",
    [{"host": "tcp://engine:2376"}, {"certSecret": "engine"}, {"sideCar": {"image": "docker:dind"}}],
    ids=lambda engine: next(iter(engine)),
)
def test_an_engine_that_nothing_builds_with_is_refused(engine: Json) -> None:
    """Values of before, when an engine was the default, are not taken for Jobs without a word."""
    with pytest.raises(helm.HelmRenderError, match=r"set it to docker to build with this engine"):
        manifests.render({"driverBuilder": {"engine": engine}})
    assert manifests.render({"driverBuilder": {"engine": engine, "builder": "docker"}})


def test_a_further_namespace_gets_what_the_first_one_has() -> None:
    """The Role with the same rules, its binding to the controller's account, and the account of build Jobs."""
    found = rendered("everything")
    assert container(found, "driver-builder")["args"] == [
        "run", "--namespace=driverwright", "--namespace=team", "--node-feature-namespaces=gpu-operator,nfd",
        "--max-builds=2",
    ]  # fmt: skip
    here, there = (
        {
            (item["kind"], item["metadata"]["name"]): {key: part for key, part in item.items() if key != "metadata"}
            for item in found
            if item["metadata"].get("namespace") == namespace
        }
        for namespace in ("driverwright", "team")
    )
    assert there.keys() == {
        ("Role", "driver-builder"), ("RoleBinding", "driver-builder"), ("ServiceAccount", "driver-builder-job"),
    }  # fmt: skip
    assert there.items() <= here.items()


@pytest.mark.parametrize(
    ("of", "namespaces", "flags"),
    [
        ("defaults", ["driverwright"], []),
        ("everything", ["gpu-operator", "nfd"], ["--node-feature-namespaces=gpu-operator,nfd"]),
        ("nobody's labels", [], ["--node-feature-namespaces=none"]),
    ],
)
def test_the_controller_reads_node_features_where_its_flag_says(
    of: str, namespaces: list[str], flags: list[str]
) -> None:
    """A Role in each of these namespaces, which allows nothing else, in the order that decides who wins."""
    name = "driver-builder-node-features"
    roles = [item for item in rendered(of) if (item["kind"], item["metadata"]["name"]) == ("Role", name)]
    assert [item["metadata"]["namespace"] for item in roles] == namespaces
    bindings = [item for item in rendered(of) if (item["kind"], item["metadata"]["name"]) == ("RoleBinding", name)]
    assert [item["metadata"]["namespace"] for item in bindings] == namespaces
    for role in roles:
        granted = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
        assert granted == {"nodefeatures": ["list", "watch"], "events": ["create", "get", "patch"]}
    given = [flag for flag in container(rendered(of), "driver-builder")["args"] if "node-feature" in flag]
    assert given == flags


@pytest.mark.parametrize(
    ("of", "expected", "variable"),
    [
        pytest.param("defaults", {}, None, id="none by default"),
        pytest.param("everything", {}, None, id="none in other namespaces"),
        pytest.param("accounts", {"driverwright": ["gpu"], "team": ["1", "gpu"]}, ",".join(ACCOUNTS), id="these"),
        pytest.param("dra", {"driverwright": ["dra"], "team": ["gpu"]}, "team/gpu", id="and those of DRA drivers"),
    ],
)
def test_the_controller_reads_the_accounts_that_plugins_may_have(
    of: str, expected: dict[str, list[str]], variable: str | None
) -> None:
    """By their names, in its own namespaces, and whether each exists is all it asks."""
    found = {
        role["metadata"]["namespace"]: (rule["resourceNames"], rule["verbs"])
        for role in rendered(of)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "serviceaccounts" in rule["resources"]
    }
    assert found == {namespace: (accounts, ["get"]) for namespace, accounts in expected.items()}
    assert environment(rendered(of), "driver-builder").get("DRIVER_BUILDER_DEVICE_AGENT_ACCOUNTS") == variable


@pytest.mark.parametrize(
    ("of", "resources", "daemon_sets"),
    [
        pytest.param("defaults", None, None, id="nothing"),
        pytest.param("drains for agents", "nvidia.com/gpu*,nvidia.com/mig-*", "driverwright/device-agent", id="these"),
    ],
)
def test_what_device_agents_may_have_drained_is_named(of: str, resources: str | None, daemon_sets: str | None) -> None:
    """By default nothing is."""
    found = environment(rendered(of), "driver-builder")
    assert found.get("DRIVER_BUILDER_AGENT_DRAIN_RESOURCES") == resources
    assert found.get("DRIVER_BUILDER_AGENT_DAEMONSETS") == daemon_sets


@pytest.mark.parametrize("of", VALUES)
def test_the_controller_sees_resource_slices_only_where_a_dra_driver_may_have_an_account(of: str) -> None:
    """To list and watch them; the flag names the accounts."""
    found = [
        (role["metadata"]["name"], rule["verbs"])
        for role in rendered(of)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "resourceslices" in rule["resources"]
    ]
    accounts = VALUES[of].get("driverBuilder", {}).get("draDriverAccounts", [])
    assert found == ([("driverwright-driver-builder-dra", ["list", "watch"])] if accounts else [])
    if of != "worker only":
        variable = environment(rendered(of), "driver-builder").get("DRIVER_BUILDER_DRA_DRIVER_ACCOUNTS")
        assert variable == (",".join(accounts) or None)


def test_pull_secrets_are_given_to_programs_and_build_jobs() -> None:
    """Programs in their pods, Jobs by their account."""
    found, wanted = rendered("everything"), [{"name": "pull"}]
    names = ("nfd-worker", "nfd-worker-gpu", "driver-builder", "device-agent")
    assert [pod(found, name)["imagePullSecrets"] for name in names] == [wanted] * 4
    jobs = [item for item in found if item["metadata"]["name"] == "driver-builder-job"]
    assert [item["imagePullSecrets"] for item in jobs] == [wanted] * 2


def test_registry_credentials_become_secrets_that_our_registry_client_reads() -> None:
    """Of the type that kubelets and ``spec.registry.secretRef`` take."""
    secret = one(rendered("everything"), "Secret", "push")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    found = parse_docker_config(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert found == {"r.example.com": Credentials(username="u", password="p")}


def test_every_node_has_one_worker() -> None:
    """Nodes with the label of GPUs have the variant, and the others the plain one."""
    for of in ("everything", "runtime class"):
        plain, variant = pod(rendered(of), "nfd-worker"), pod(rendered(of), "nfd-worker-gpu")
        assert variant["nodeSelector"]["gpu"] == "true"
        (term,) = plain["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["true"]}]}
        assert "affinity" not in variant
        selectors = [
            one(rendered(of), "DaemonSet", name)["spec"]["selector"]["matchLabels"]
            for name in ("nfd-worker", "nfd-worker-gpu")
        ]
        assert selectors == [{"app.kubernetes.io/name": name} for name in ("nfd-worker", "nfd-worker-gpu")]


def test_a_worker_with_nvidias_runtime_has_no_privileges() -> None:
    """The runtime gives it device nodes and library; otherwise it sees the node's own."""
    by_runtime, by_mounts = (
        pod(rendered("runtime class"), "nfd-worker-gpu"),
        pod(rendered("everything"), "nfd-worker-gpu"),
    )
    assert by_runtime["runtimeClassName"] == "nvidia"
    assert environment(rendered("runtime class"), "nfd-worker-gpu")["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert "runtimeClassName" not in by_mounts
    paths = [
        {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        for spec in (by_runtime, by_mounts)
    ]
    assert paths[1] - paths[0] == {"/dev"}
    assert {"/run/nvidia", "/run/driverwright-agent"} <= paths[0]
    for spec in (by_runtime, by_mounts):
        (report,) = (
            item for item in spec["volumes"] if item.get("hostPath", {}).get("path") == "/run/driverwright-agent"
        )
        assert report["hostPath"]["type"] == "DirectoryOrCreate", "a node without the agent has a worker all the same"
        (mount,) = (item for item in spec["containers"][0]["volumeMounts"] if item["name"] == report["name"])
        assert (mount["mountPath"], mount["readOnly"]) == (f"/host/{SHARING_FILE.rpartition('/')[0]}", True)


def test_nvidias_library_is_in_a_container_of_its_own() -> None:
    """Privileged, with the node's own /dev; the agent beside it is as without, and neither has a token."""
    spec, plain = pod(rendered("nvidia"), "device-agent"), pod(objects({"deviceAgent": AGENT}), "device-agent")
    agent, nvml = spec["containers"]
    (alone,) = plain["containers"]
    assert agent.keys() == alone.keys()
    assert {key for key in alone if agent[key] != alone[key]} == {"env", "volumeMounts"}
    assert spec["automountServiceAccountToken"] is False
    assert nvml["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert nvml["resources"]["limits"]["memory"]
    assert not nvml["terminationMessagePath"].startswith("/dev")
    assert (nvml["image"], nvml["args"][0]) == (agent["image"], "nvml")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    seen = {
        mount["mountPath"]: (paths.get(mount["name"]), mount.get("readOnly", False)) for mount in nvml["volumeMounts"]
    }
    assert seen == {
        "/dev": ("/dev", False),
        "/host/sys": ("/sys", True),
        "/host/run/nvidia": ("/run/nvidia", True),
        "/run/device-agent": (None, False),
    }


def test_the_agent_and_nvidias_library_meet_at_a_socket() -> None:
    """In a folder that is the pod's; what the agent remembers outlives the pod."""
    spec = pod(rendered("nvidia"), "device-agent")
    agent, nvml = spec["containers"]
    folder = nvml["args"][1].removeprefix("--socket=").rpartition("/")[0]
    (volume,) = {
        mount["name"] for part in (agent, nvml) for mount in part["volumeMounts"] if mount["mountPath"] == folder
    }
    assert {"name": volume, "emptyDir": {}} in spec["volumes"]
    mounts = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    assert "readOnly" not in mounts["/var/lib/driverwright-agent"]
    assert mounts["/host/run/nvidia"]["mountPropagation"] == "HostToContainer"


def test_the_agent_leaves_before_the_driver_of_its_devices_is_replaced() -> None:
    """By the label of stages; without a driver it is on every node."""
    selected = [pod(rendered(of), "device-agent").get("nodeSelector") for of in ("nvidia", "nvidia of the nodes")]
    assert selected == [{stage_label("gpus/nvidia", Stage.RUN): "true", "e": "f"}, None]


@pytest.mark.parametrize(
    "folder", ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib"]
)
def test_nvml_sees_the_library_of_a_nodes_distribution(folder: str) -> None:
    """Wherever NVML's library is looked for below the host's root, if no driver of ours brings it."""
    spec = pod(rendered("nvidia of the nodes"), "device-agent")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = spec["containers"][1]["volumeMounts"]
    assert [mount["readOnly"] for mount in mounts if is_seen(folder, paths.get(mount["name"]), mount)] == [True]


def is_seen(folder: str, path: str | None, mount: Json) -> bool:
    """Return whether a mount shows a folder of the node at its place below the host's root."""
    return path is not None and f"{folder}/".startswith(f"{path}/") and mount["mountPath"] == f"/host{path}"


def test_the_agents_configuration_has_nvidias_devices() -> None:
    """Beside the resources, whatever form these are written in; health checks are variables, as of NVIDIA's plugin."""
    config = read_yaml(one(rendered("nvidia"), "ConfigMap", "device-agent-config")["data"]["config.yaml"])
    assert config["resources"] == []
    assert parse_nvidia(config["nvidia"]) == NvidiaSettings(
        mig_strategy=MigStrategy.MIXED, libraries="/run/nvidia/driver"
    )
    assert environment(rendered("nvidia"), "device-agent") == {"C": "3", "DP_DISABLE_HEALTHCHECKS": "13, 31"}
    of_nodes = read_yaml(
        one(rendered("nvidia of the nodes"), "ConfigMap", "device-agent-config")["data"]["config.yaml"]
    )
    assert parse_nvidia(of_nodes["nvidia"]) == NvidiaSettings()
    for text in ("{resources: [], nvidia: {}}", "- resources"):
        with pytest.raises(helm.HelmRenderError, match=r"written from deviceAgent\.nvidia"):
            objects({"deviceAgent": {"enabled": True, "config": text, "nvidia": {"enabled": True}}})


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/run/nvidia/driver", set()),
        ("/run/driverwright/gpus.nvidia", set()),
        ("/opt/nvidia/driver", {"/host/opt/nvidia"}),
    ],
)
def test_the_agent_sees_the_folder_above_the_libraries(path: str, more: set[str]) -> None:
    """An upgrade replaces them by a link: a mount of the link itself would stay with the old ones."""
    values = {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True, "libraries": {"path": path}}}}
    seen = [
        {mount["mountPath"] for mount in container(found, "device-agent")["volumeMounts"]}
        for found in (objects(values), rendered("nvidia of the nodes"))
    ]
    assert seen[0] - seen[1] == more


def test_the_values_of_the_devices_use_are_those_of_the_configuration() -> None:
    """Field by field; the chart has a Service and a PodMonitor besides, and its agent has a port of its own."""
    agent = json.loads((CHART / "values.schema.json").read_text())["properties"]["deviceAgent"]["properties"]
    exporter = _without_words(agent["exporter"]["properties"])
    assert exporter.pop("service")
    assert exporter.pop("podMonitor")
    assert exporter["port"].pop("not") == {"const": 8080}
    assert exporter == exporter_schema()["properties"]
    assert _of_a_definition(_without_words(agent["memory"]["properties"])) == memory_schema()["properties"]


def _without_words(part: Json) -> Json:
    return {name: {word: item[word] for word in item if word != "description"} for name, item in part.items()}


def _of_a_definition(memory: Json) -> Json:
    """Write what a chart's schema says as a definition does, which has words of its own for values of two types."""
    either = memory["limits"]["additionalProperties"]
    assert either.pop("type") == ["string", "integer"]
    either.update({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    memory["mode"]["x-kubernetes-preserve-unknown-fields"] = True
    memory["default"]["type"] = "string"
    return memory


def test_the_values_of_nvidias_devices_are_those_of_the_configuration() -> None:
    """Field by field: the chart refuses what the agent would refuse."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["deviceAgent"]["properties"]["nvidia"]
    known, given = nvidia_schema()["properties"], schema["properties"]
    for name in ("migStrategy", "sharedDevicesAllocationPolicy"):
        assert given[name]["enum"] == known[name]["enum"]
    hold = given["health"]["properties"]["holdSeconds"]
    wanted = known["health"]["properties"]["holdSeconds"]
    assert {key: hold[key] for key in wanted} == wanted
    pattern = given["libraries"]["properties"]["path"]["pattern"]
    assert pattern == f"^{known['libraries']['properties']['path']['pattern'][1:-1]}?$"
    mig = _without_words(given["mig"]["properties"])
    assert {name: mig.pop(name) for name in known["mig"]["properties"]} == known["mig"]["properties"]
    assert mig.keys() == {"configMap", "tokenWithoutPolicy"}


def test_toolchains_are_one_value() -> None:
    """On, whatever builds; a variable, which an overlay of the manifests replaces by its name."""
    variable = "DRIVER_BUILDER_TOOLCHAINS"
    assert [environment(rendered(of), "driver-builder")[variable] for of in ("defaults", "engine")] == ["true", "true"]
    assert environment(rendered("everything"), "driver-builder")[variable] == "false"


def test_a_controller_without_workers_distributes_no_rules() -> None:
    """Their ConfigMap and the Role for it are not there either."""
    found = rendered("controller only")
    assert container(found, "driver-builder")["args"] == ["run", "--no-feature-rules"]
    assert not [
        item
        for item in found
        if "feature-rules" in item["metadata"]["name"] or "nfd-worker" in item["metadata"]["name"]
    ]


def test_the_network_policy_selects_the_programs_pods_alone() -> None:
    """All of them, on the port that each names; a driver may have the name of a program, but not both labels."""
    found = rendered("everything")
    spec = one(found, "NetworkPolicy", "driverwright")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": [{"namespaceSelector": {}}]}]
    (names,) = spec["podSelector"]["matchExpressions"]
    workloads = [item for item in found if item["kind"] in ("Deployment", "DaemonSet")]
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in workloads]
    assert {item["app.kubernetes.io/name"] for item in labels} == set(names["values"])
    assert all(spec["podSelector"]["matchLabels"].items() <= item.items() for item in labels)
    assert all(container(found, item["metadata"]["name"])["ports"][0]["name"] == "http" for item in workloads)
    assert one(found, "PodMonitor", "driverwright")["spec"]["selector"] == spec["podSelector"]
    assert one(found, "PodMonitor", "driverwright")["metadata"]["labels"] == {"release": "prometheus"}


def test_the_rule_object_has_the_alerts_of_the_file() -> None:
    """As they are, Prometheus' own templates included; of programs that are not installed there are none."""
    groups = read_yaml((CHART / "alerts/driverwright.yaml").read_text())["groups"]
    found = one(rendered("everything"), "PrometheusRule", "driverwright")
    assert found["spec"]["groups"] == groups
    assert found["metadata"]["labels"] == {"release": "prometheus"}
    part = objects({"driverBuilder": {"enabled": False}, "prometheusRule": {"enabled": True}})
    assert [group["name"] for group in one(part, "PrometheusRule", "driverwright")["spec"]["groups"]] == ["nfd-worker"]


def test_how_long_an_alert_waits_is_a_value() -> None:
    """Of one alert; a name that no alert has is refused, with those that there are."""
    for_ = {"NodesWithoutDriver": "2h", "DriverWaveHalted": "5m"}
    rule = one(objects({"prometheusRule": {"enabled": True, "for": for_}}), "PrometheusRule", "driverwright")
    waits = {item["alert"]: item.get("for") for group in rule["spec"]["groups"] for item in group["rules"]}
    assert for_.items() <= waits.items()
    assert waits["DriverBlocked"] == "30m"
    with pytest.raises(helm.HelmError, match="no alert NodesWithoutDrivers; there are: NodesWithoutDriver, "):
        objects({"prometheusRule": {"enabled": True, "for": {"NodesWithoutDrivers": "2h"}}})


def test_the_dashboards_config_map_has_the_file() -> None:
    """With the label that the sidecar of Grafana's chart looks for by default."""
    found = one(rendered("everything"), "ConfigMap", "driverwright-dashboard")
    assert found["data"] == {"driverwright.json": (CHART / "dashboards/driverwright.json").read_text()}
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert found["metadata"]["annotations"] == {"grafana_folder": "Nodes"}


def test_how_a_worker_logs_does_not_concern_its_admission_policy() -> None:
    """Other variables do: the policy of the chart is for default settings."""
    variables = {"NFD_WORKER_LOG_FORMAT": "json", "NFD_WORKER_LOG_LEVEL": "debug"}
    assert objects({"admissionPolicies": {"enabled": True}, "nfdWorker": {"env": variables}})
    with pytest.raises(helm.HelmError, match="Settings of yours: OTHER"):
        objects({"admissionPolicies": {"enabled": True}, "nfdWorker": {"env": {**variables, "OTHER": "x"}}})


def test_the_admission_policies_are_those_of_deploy() -> None:
    """For the accounts of the release's namespace."""
    default = [item for item in objects({"admissionPolicies": {"enabled": True}}) if "Admission" in item["kind"]]
    files = [read_documents((DEPLOY / f"admission/{name}.yaml").read_text()) for name in POLICIES]
    assert default == [*files[0], *files[1]]
    elsewhere = str(rendered("everything", "elsewhere"))
    assert all(f"system:serviceaccount:elsewhere:{name}" in elsewhere for name in POLICIES)
    assert "system:serviceaccount:driverwright:" not in elsewhere


@pytest.mark.parametrize(
    "worker",
    [
        {"args": ["--enable-taints"]},
        {"env": {"NFD_WORKER_EXTRA_LABEL_NS": "example.com"}},
        {"config": "core: {denyLabelNs: ['*']}"},
        {"config": "extraLabelNs: [example.com]"},
    ],
    ids=str,
)
def test_the_default_policy_is_not_for_workers_with_other_settings(worker: Json) -> None:
    """It would refuse all that they write: rendering fails and says what to do."""
    with pytest.raises(helm.HelmRenderError, match=r"set admissionPolicies\.nfdWorker"):
        manifests.render({"nfdWorker": worker, "admissionPolicies": {"enabled": True}})
    printed = (DEPLOY / "admission/nfd-worker.yaml").read_text()
    assert manifests.render({"nfdWorker": worker, "admissionPolicies": {"enabled": True, "nfdWorker": printed}})


def test_the_namespace_is_never_deleted() -> None:
    """Where it is rendered at all; all drivers would go with it."""
    namespace = one(rendered("everything"), "Namespace", "driverwright")
    assert namespace["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not [item for of in VALUES for item in rendered(of) if item["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("program", "name"), [("nfdWorker", "nfd-worker-conf"), ("deviceAgent", "device-agent-config")]
)
def test_a_configuration_is_the_value_or_left_to_the_admin(program: str, name: str) -> None:
    """An empty value renders no ConfigMap; the pods mount the one of that name."""
    values = {"enabled": True, "config": "a: b\n"}
    (text,) = one(objects({program: values}), "ConfigMap", name)["data"].values()
    assert text == "a: b\n"
    found = objects({program: {**values, "config": ""}})
    assert not [item for item in found if item["metadata"]["name"] == name]


def test_each_value_is_in_the_schema_and_described() -> None:
    """The table of the README has a row for each, and no others."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \| .* \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    values = read_yaml((CHART / "values.yaml").read_text())
    assert {name.partition(".")[0] for name, _ in rows} == set(values)
    described = {name for name, _ in rows}
    tops = {f"{top}.{name}" for top, part in values.items() if isinstance(part, dict) for name in part}
    assert all(any(row == top or row.startswith(f"{top}.") for row in described) for top in tops)
