"""What docs/autoscaling.md says of templates of nodes: the answer of a real scheduler for a Node made of one.

An autoscaler asks the scheduler's code whether a pod would fit on a node that is not there yet: a Node made of the
template, without its startup taints. Here such a Node is in the cluster.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import yaml

from kube_api.names import pending_taint, ready_label
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import Json
from tests.support.real_parts.gpu_teams import (
    EXAMPLES,
    GPU,
    POOL,
    SHARED,
    Cluster,
    cluster_of,
    of_kind,
    pod,
    tolerating,
)

pytestmark = pytest.mark.long

PREFIX = "k8s.io/cluster-autoscaler/node-template/"
READY = ready_label("driverwright", "nvidia")
STARTUP = {"key": pending_taint("driverwright", "nvidia"), "value": "pending", "effect": "NoSchedule"}
VERSION = "535.261.03"
MINE = {"nodeSelector": {POOL: "training"}, "tolerations": tolerating(GPU, POOL)}


class Template(NamedTuple):
    """What an autoscaler believes of a node that it would add. ``startup``: taints that it takes to go."""

    labels: Mapping[str, str]
    taints: Sequence[Json]
    devices: Mapping[str, int]
    startup: Sequence[Json] = ()


def of_tags() -> Template:
    """Read the tags of Cluster Autoscaler, as its provider for AWS does."""
    tags: dict[str, str] = yaml.safe_load((EXAMPLES / "autoscaling/cluster-autoscaler-tags.yaml").read_text())
    found: dict[str, dict[str, str]] = {"label": {}, "taint": {}, "resources": {}}
    for key, value in tags.items():
        kind, _, name = key.removeprefix(PREFIX).partition("/")
        found[kind][name] = value
    taints = [
        {"key": key, "value": value.partition(":")[0], "effect": value.partition(":")[2]}
        for key, value in found["taint"].items()
    ]
    return Template(found["label"], taints, {key: int(value) for key, value in found["resources"].items()})


def of_node_pool() -> Template:
    """Read the NodePool of Karpenter and its overlay; a p4d.24xlarge has eight GPUs."""
    (pool,) = of_kind("autoscaling/karpenter.yaml", "NodePool")
    (overlay,) = of_kind("autoscaling/karpenter.yaml", "NodeOverlay")
    made, spec = pool["spec"]["template"]["metadata"], pool["spec"]["template"]["spec"]
    devices = {GPU: 8, **{key: int(value) for key, value in overlay["spec"]["capacity"].items()}}
    return Template(made["labels"], spec["taints"], devices, spec["startupTaints"])


@pytest.fixture
def cluster(scheduling_ground: Testbed) -> Iterator[Cluster]:
    """Make a cluster without nodes."""
    with cluster_of(scheduling_ground) as made:
        yield made


@pytest.mark.parametrize(
    ("template", "takes_ready"),
    [pytest.param(of_tags(), True, id="Cluster Autoscaler"), pytest.param(of_node_pool(), False, id="Karpenter")],
)
def test_pods_fit_on_the_imagined_node(cluster: Cluster, template: Template, *, takes_ready: bool) -> None:
    """Whole cards and slices do; a pod that selects the ready label does only where the template has it."""
    cluster.nodes.add("imagined", template.devices, labels=template.labels, taints=template.taints)
    team = cluster.team("imagined")
    team.comes_to(team.make(pod("whole", {GPU: 1}, **MINE)), "imagined")
    team.comes_to(team.make(pod("slice", {SHARED: 1}, **MINE)), "imagined")
    selects: dict[str, Any] = {**MINE, "nodeSelector": {READY: VERSION}}
    name = team.make(pod("selects-ready", {GPU: 1}, **selects))
    if takes_ready:
        team.comes_to(name, "imagined")
    else:
        team.waits(name, "node")


@pytest.mark.parametrize("missing", ["label", "taint", "resource"])
def test_without_a_part_of_the_template_the_group_does_not_grow(cluster: Cluster, missing: str) -> None:
    """A label that the pod selects, a resource that it requests. A taint more than the template says is as bad."""
    template = of_tags()
    labels, taints, devices = dict(template.labels), list(template.taints), dict(template.devices)
    if missing == "label":
        del labels[READY]
    elif missing == "taint":
        taints.append(STARTUP)
    else:
        del devices[SHARED]
    cluster.nodes.add("imagined", devices, labels=labels, taints=taints)
    team = cluster.team("imagined")
    selects: dict[str, Any] = {**MINE, "nodeSelector": {READY: VERSION}}
    team.waits(team.make(pod("slice", {SHARED: 1}, **selects)))


def test_a_node_that_joins_gets_no_pod_before_its_driver_is_proven(cluster: Cluster) -> None:
    """Neither with the taint alone gone nor with the devices alone there, but with both."""
    template = of_node_pool()
    assert template.startup == [STARTUP]
    assert READY not in template.labels
    cluster.nodes.add("joins", {}, labels=template.labels, taints=[*template.taints, *template.startup])
    team = cluster.team("joining")
    name = team.make(pod("slice", {SHARED: 1}, **MINE))
    team.waits(name)
    cluster.nodes.offer("joins", {SHARED: 4})
    idle = team.make(pod("without-a-gpu", {}, **MINE))
    team.waits(idle)
    assert team.node_of(name) == ""
    path = NODES.path(name="joins")
    cluster.client.patch(path, {"spec": {"taints": list(template.taints)}, "metadata": {"labels": {READY: VERSION}}})
    team.comes_to(name, "joins")
    team.comes_to(idle, "joins")


def test_the_page_names_the_keys_of_the_files() -> None:
    """Prefix, startup taint, and flags with the key of the taint."""
    page = (EXAMPLES.parents[1] / "docs/autoscaling.md").read_text()
    assert PREFIX in page
    assert f"--startup-taint={STARTUP['key']}" in page
    assert f"--register-with-taints={STARTUP['key']}=pending:NoSchedule" in page
    assert set(re.findall(r"`(label|taint|resources)/(?:KEY|NAME)`", page)) == {"label", "taint", "resources"}
