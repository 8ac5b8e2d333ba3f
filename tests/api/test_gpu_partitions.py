"""The examples that divide GPUs among teams, on a real API server with its scheduler: quotas, priorities, pools."""

import time
from collections.abc import Iterator

import pytest

from kube_api.client import Client
from kube_api.errors import Forbidden
from kube_api.resources import NAMESPACES, PODS, Resource
from testbed.testbed import Testbed
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import Json, admin, create_quietly, make_namespace
from tests.support.real_parts.gpu_teams import (
    GPU,
    PATIENCE,
    POOL,
    PRIORITIES,
    SHARED,
    SMALL,
    Cluster,
    Team,
    add_priorities,
    cluster_of,
    of_kind,
    pod,
    team_in,
    tolerating,
)

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
MIG = "nvidia.com/mig-1g.5gb"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
LOW, HIGH = "gpu-training", "gpu-inference"


def quota_of(namespace: str) -> Json:
    """Return what a namespace of the examples may request: name -> amount."""
    (found,) = (
        item["spec"]["hard"]
        for item in of_kind("quotas.yaml", "ResourceQuota")
        if item["metadata"] == {"name": "gpu", "namespace": namespace}
    )
    return dict(found)


def devices_of(namespace: str) -> dict[str, int]:
    """Return how many devices of each name a namespace may request."""
    prefix = "requests."
    hard = quota_of(namespace)
    return {key.removeprefix(prefix): int(hard[key]) for key in hard if key.startswith(f"{prefix}nvidia.com/")}


def with_quota(client: Client, namespace: str) -> Team:
    """Make a namespace with the quotas of one of the examples' under another name; wait until they count."""
    name = f"partition-{namespace}"
    make_namespace(client, name)
    add_priorities(client)
    for item in of_kind("quotas.yaml", "ResourceQuota"):
        if item["metadata"]["namespace"] == namespace:
            made = {**item, "metadata": {**item["metadata"], "namespace": name}}
            create_quietly(client, QUOTAS.path(namespace=name), made)

    def count() -> bool:
        quotas = client.list(QUOTAS.path(namespace=name)).items
        return all(item.get("status", {}).get("hard") == item["spec"]["hard"] for item in quotas)

    wait_for("the quotas count", count, timeout=PATIENCE)
    return team_in(client, name)


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Connect to an API server without a scheduler; take the teams away again."""
    client = admin(control_plane_ground)
    yield client
    for namespace in ("training", "inference"):
        client.delete(NAMESPACES.path(name=f"partition-{namespace}"))
    for priority in (LOW, HIGH):
        client.delete(PRIORITIES.path(name=priority))


@pytest.mark.parametrize("namespace", ["training", "inference"])
def test_over_each_quota_of_devices_a_pod_is_refused(root: Client, namespace: str) -> None:
    """For every name that is in it: what is allowed at once is, and one more is not, whatever else is free."""
    team = with_quota(root, namespace)
    allowed = devices_of(namespace)
    assert 0 in allowed.values()
    for number, (resource, most) in enumerate(allowed.items()):
        with pytest.raises(Forbidden, match=rf"exceeded quota: gpu, requested: requests\.{resource}={most + 1}"):
            team.make(pod(f"over-{number}", {resource: most + 1}, priorityClassName=LOW))
        if most:
            team.make(pod(f"all-{number}", {resource: most}, priorityClassName=LOW))
            words = rf"requested: requests\.{resource}=1, used: requests\.{resource}={most}"
            with pytest.raises(Forbidden, match=words):
                team.make(pod(f"more-{number}", {resource: 1}, priorityClassName=LOW))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"cpu": "65"}, r"requested: limits\.cpu=65", id="cpu"),
        pytest.param({"memory": "513Gi"}, r"requested: limits\.memory=513Gi", id="memory"),
    ],
)
def test_over_the_quota_of_cpu_and_memory_a_pod_is_refused(root: Client, change: Json, words: str) -> None:
    """Also without a GPU."""
    team = with_quota(root, "training")
    made = pod("large", {})
    made["spec"]["containers"][0]["resources"] = {"requests": {**SMALL, **change}, "limits": {**SMALL, **change}}
    with pytest.raises(Forbidden, match=words):
        team.make(made)


def test_a_pod_that_says_nothing_of_cpu_and_memory_is_refused(root: Client) -> None:
    """As the page says: with these quotas each pod has to."""
    team = with_quota(root, "training")
    made = pod("silent", {})
    del made["spec"]["containers"][0]["resources"]
    with pytest.raises(Forbidden, match=r"failed quota: gpu: must specify limits\.cpu"):
        team.make(made)


def test_training_may_not_take_the_priority_of_inference(root: Client) -> None:
    """By a quota of no pods with it; without a priority, and with its own, they are made."""
    team = with_quota(root, "training")
    with pytest.raises(Forbidden, match="exceeded quota: no-inference-priority"):
        team.make(pod("too-important", {}, priorityClassName=HIGH))
    team.make(pod("as-it-should", {}, priorityClassName=LOW))
    team.make(pod("unimportant", {}))


@pytest.fixture
def cluster(scheduling_ground: Testbed) -> Iterator[Cluster]:
    """Make a cluster without nodes."""
    with cluster_of(scheduling_ground) as made:
        yield made


@pytest.mark.long
def test_a_high_priority_takes_a_slice_from_a_low_one(cluster: Cluster) -> None:
    """One pod is displaced, and no more; between equals, and the other way round, nobody is."""
    cluster.nodes.add("shared", {SHARED: 2}, taints=[TAINT])
    team = cluster.team("preemption")
    tolerations = tolerating(GPU)

    def slice_of(name: str, priority: str) -> str:
        return team.make(pod(name, {SHARED: 1}, priorityClassName=priority, tolerations=tolerations))

    for name in (slice_of("train-0", LOW), slice_of("train-1", LOW)):
        team.comes_to(name, "shared")
    team.waits(slice_of("train-2", LOW), f"Insufficient {SHARED}")
    team.comes_to(slice_of("chat-0", HIGH), "shared")
    assert [team.is_gone(name) for name in ("train-0", "train-1")].count(True) == 1
    team.comes_to(slice_of("chat-1", HIGH), "shared")
    assert all(team.is_gone(name) for name in ("train-0", "train-1"))
    team.waits(slice_of("chat-2", HIGH), f"Insufficient {SHARED}")
    assert team.why_not("train-2")
    assert [team.node_of(name) for name in ("chat-0", "chat-1")] == ["shared", "shared"]


@pytest.mark.long
def test_the_admission_plugin_tolerates_the_requested_name_only(cluster: Cluster) -> None:
    """So a pod with a slice, an instance or a model's card carries that of the taint, and one without it waits."""
    other = "nvidia.com/a100"
    cluster.nodes.add("all-kinds", {GPU: 1, SHARED: 1, MIG: 1, other: 1}, taints=[TAINT])
    team = cluster.team("tolerations")
    team.comes_to(team.make(pod("whole", {GPU: 1})), "all-kinds")
    for number, resource in enumerate((SHARED, MIG, other)):
        name = team.make(pod(f"without-{number}", {resource: 1}))
        made = cluster.client.get(PODS.path(namespace=team.namespace, name=name))["spec"]["tolerations"]
        assert {"key": resource, "operator": "Exists", "effect": "NoSchedule"} in made
        assert GPU not in {one["key"] for one in made}
        team.waits(name, GPU)
        team.comes_to(team.make(pod(f"with-{number}", {resource: 1}, tolerations=tolerating(GPU))), "all-kinds")
    team.waits(team.make(pod("no-gpu", {})), GPU)


@pytest.mark.long
def test_a_pod_without_the_toleration_never_comes_to_a_pool(cluster: Cluster) -> None:
    """Whatever it requests, selects, and however important it is; also when it waits, and the pool is empty."""
    pool = {"key": POOL, "value": "training", "effect": "NoSchedule"}
    cluster.nodes.add("pool", {GPU: 4, SHARED: 4}, labels={POOL: "training"}, taints=[TAINT, pool])
    cluster.nodes.add("common", {GPU: 1}, taints=[TAINT])
    team = cluster.team("pools")
    (example,) = of_kind("pool-pod.yaml", "Pod")
    spec = {**example["spec"], "automountServiceAccountToken": False}
    team.comes_to(team.make({"metadata": {"name": "in-the-pool"}, "spec": spec}), "pool")
    team.comes_to(team.make(pod("first", {GPU: 1}, priorityClassName=HIGH)), "common")
    strangers = [
        team.make(pod("second", {GPU: 1}, priorityClassName=LOW)),
        team.make(pod("selects", {GPU: 1}, nodeSelector={POOL: "training"}, priorityClassName=HIGH)),
        team.make(pod("slice", {SHARED: 1}, tolerations=tolerating(GPU))),
        team.make(pod("without-a-gpu", {}, nodeSelector={POOL: "training"})),
        team.make(pod("another-pool", {GPU: 1}, tolerations=[{**pool, "value": "inference", "operator": "Equal"}])),
    ]
    for name in strangers:
        team.waits(name, "taint")
    # The scheduler tries again when something changes.
    cluster.nodes.offer("pool", {GPU: 8, SHARED: 8})
    time.sleep(5)
    assert [team.node_of(name) for name in strangers] == [""] * len(strangers)
