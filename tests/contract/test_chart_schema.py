"""The schema of the chart's values: what it accepts, and what it refuses with a word that helps."""

import helm_python as helm
import pytest

from tests.contract.chart import (
    VALUES,
    Json,
    container,
    objects,
)
from tools import manifests


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
