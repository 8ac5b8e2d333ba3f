"""Profiles of shared GPUs on a model of a cluster: names change and no label goes; a token that is not allowed."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.cluster.plugin_accounts import SECONDS
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import agent_token
from driver_builder.tasks import validation_pod
from kube_api.client import Object
from kube_api.names import GPU_PROFILE_ANNOTATION
from kube_api.resources import NODES, PODS, SERVICE_ACCOUNTS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.unit.driver_builder.world.test_world_stages import (
    EVERY,
    PLUG_SET,
    RUN,
    VALID,
    VALIDATION,
    WITH_AGENT,
    Watched,
    condition,
    settle,
    stages,
)

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
NVIDIA: dict[str, Any] = {"profiles": {"configMap": "p"}, "serviceAccountName": "gpu"}
CHAIN: dict[str, Any] = {"devicePlugin": {"nvidia": NVIDIA}, "pluginValidation": VALIDATION}
ACCOUNT = f"{NAMESPACE}/gpu"
ALLOWING = replace(WITH_AGENT, device_agent_accounts=frozenset({ACCOUNT}))


MIG: dict[str, Any] = {"mig": {"enabled": True, "configMap": "m"}, "serviceAccountName": "gpu"}


def gpus(settings: PlanSettings = ALLOWING, *, has_account: bool = True, nvidia: dict[str, Any] = NVIDIA) -> Watched:
    """Make a node with GPUs, and a driver with profiles, or what else is given."""
    world = Watched(settings)
    world.resource = GPU
    world.add_node("a", KERNEL)
    if has_account:
        world.client.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": "gpu"}})
    world.add_driver(stages={**CHAIN, "devicePlugin": {"nvidia": nvidia}})
    return world


def offer(world: Watched, *names: str, also: tuple[str, ...] = ()) -> None:
    """Let the agent offer other names, and say so; ``also`` it says besides."""
    world.plugged["a"] = names
    text = f'{{"asked":"","applied":"","message":"","resources":{[*names, *also]}}}'.replace("'", '"')
    world.client.patch(NODES.path(name="a"), {"metadata": {"annotations": {GPU_PROFILE_ANNOTATION: text}}})


def use(world: Watched, resource: str) -> str:
    """Let a pod of somebody use a resource; gives its path."""
    container = {"name": "x", "resources": {"limits": {resource: "1"}}}
    pod = {
        "metadata": {"name": "user", "ownerReferences": [{"uid": "uid-edu", "kind": "Job"}]},
        "spec": {"nodeName": "a", "containers": [container]},
        "status": {"phase": "Running"},
    }
    world.client.create(PODS.path(namespace="others"), pod)
    return PODS.path(namespace="others", name="user")


def pod_of(world: Watched) -> Object:
    """Return the spec of the plugin's pods."""
    found: Object = world.client.get(PLUG_SET)["spec"]["template"]["spec"]
    return found


def turns(world: Watched, count: int) -> None:
    """Let so many passes and rounds follow each other, ten seconds apart."""
    for _ in range(count):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 10


def test_a_profile_that_renames_takes_no_label() -> None:
    """Neither plug nor what follows it, and nothing is validated once more."""
    world = gpus()
    offer(world, GPU)
    settle(world)
    assert stages(world)["a"] == EVERY
    assert agent_token.has_token(pod_of(world))
    assert condition(world) == ("True", "StagesReady")
    world.labels.clear()
    offer(world, SHARED)
    world.now += 100
    settle(world)
    assert world.labels == {"a": [EVERY]}
    assert len(world.plugin_validations) == 1


def test_a_validation_asks_for_the_new_name() -> None:
    """An earlier one, which is still in use, is left to its pods."""
    world = gpus()
    offer(world, SHARED, also=(GPU,))
    use(world, GPU)
    world.validating.add("a")
    turns(world, 12)
    (pod,) = [pod for pod in world.pods_on("a")
              if validation_pod.PLUGIN_VALIDATION.label in pod["metadata"]["labels"]]  # fmt: skip
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {SHARED: "1"}


def test_cards_that_cannot_be_given_take_no_label_while_pods_use_them() -> None:
    """A minute after the last of these has ended plug goes."""
    world = gpus()
    offer(world, GPU)
    settle(world)
    path = use(world, GPU)
    world.labels.clear()
    world.without_devices.add("a")
    turns(world, 20)
    assert world.labels == {"a": [EVERY]}
    assert condition(world) == ("True", "StagesReady")
    world.client.patch(path, {"status": {"phase": "Succeeded"}})
    turns(world, 20)
    assert stages(world)["a"] == {VALID, RUN}
    assert condition(world) == ("False", "ResourceMissing")


def test_names_of_others_bring_no_label() -> None:
    """A node that says it offers what every node has gets nothing by it."""
    world = gpus()
    offer(world, "cpu", "example.com/a")
    turns(world, 20)
    assert stages(world)["a"] == {VALID, RUN}


@pytest.mark.parametrize(
    ("settings", "has_account", "reason", "words"),
    [
        pytest.param(WITH_AGENT, True, "ServiceAccountNotAllowed", "not allowed by --device-agent-accounts",
                     id="not allowed"),
        pytest.param(ALLOWING, False, "ServiceAccountNotFound", f"ServiceAccount {ACCOUNT} does not exist",
                     id="missing"),
    ],
)  # fmt: skip
def test_without_the_account_devices_are_there_and_the_condition_says_why_profiles_are_not(
    settings: PlanSettings, has_account: bool, reason: str, words: str
) -> None:
    """Pods have no token; every stage is there."""
    world = gpus(settings, has_account=has_account)
    settle(world)
    assert stages(world)["a"] == EVERY
    assert not agent_token.has_token(pod_of(world))
    assert "serviceAccountName" not in pod_of(world)
    assert condition(world) == ("False", reason)
    assert words in world.status()["stages"]["message"]


@pytest.mark.parametrize(
    ("nvidia", "words"),
    [
        pytest.param(NVIDIA, ": every node has the default profile", id="profiles"),
        pytest.param(MIG, ": no MIG layout is changed", id="MIG layouts"),
        pytest.param({**NVIDIA, **MIG}, ": every node has the default profile and no MIG layout is changed", id="both"),
    ],
)
def test_what_is_lost_without_the_account_is_said(nvidia: dict[str, Any], words: str) -> None:
    """And nothing that changes a layout is in the pod: it comes with the token alone. Devices are there anyway."""
    world = gpus(WITH_AGENT, nvidia=nvidia)
    settle(world)
    assert stages(world)["a"] == EVERY
    assert world.status()["stages"]["message"].endswith(words)
    assert "changes-mig" not in str(pod_of(world))
    world = gpus(nvidia=nvidia)
    settle(world)
    assert stages(world)["a"] == EVERY
    assert agent_token.has_token(pod_of(world))
    assert ("--changes-mig=true" in str(pod_of(world))) is ("mig" in nvidia)


def test_a_token_for_layouts_alone_says_nothing_of_names() -> None:
    """What an agent with profiles once wrote is old then: ``plug`` goes by what the node has."""
    world = gpus(nvidia=MIG)
    settle(world)
    offer(world, GPU)
    text = '{"asked":"","applied":"","message":"","resources":["nvidia.com/gone"]}'
    world.client.patch(NODES.path(name="a"), {"metadata": {"annotations": {GPU_PROFILE_ANNOTATION: text}}})
    turns(world, 12)
    assert stages(world)["a"] == EVERY


def test_an_account_may_come_and_go() -> None:
    """Its pods get the token, and lose it before one could be refused for want of the account."""
    world = gpus(has_account=False)
    settle(world)
    account = {"metadata": {"name": "gpu"}}
    path = SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name="gpu")
    world.client.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), account)
    world.now += SECONDS
    settle(world)
    assert pod_of(world)["serviceAccountName"] == "gpu"
    assert condition(world) == ("True", "StagesReady")
    world.client.delete(path)
    world.now += SECONDS
    settle(world)
    assert pod_of(world)["serviceAccountName"] == "default"
    assert not agent_token.has_token(pod_of(world))
    assert condition(world) == ("False", "ServiceAccountNotFound")


def test_an_account_that_may_not_be_read_any_more_replaces_no_pod() -> None:
    """A Role that is made anew must not give all nodes the default profile for a while."""
    world = gpus()
    settle(world)
    before = pod_of(world)
    world.client.forbidden = (SERVICE_ACCOUNTS.path(namespace=NAMESPACE),)
    world.now += SECONDS
    settle(world)
    assert pod_of(world) == before
    assert condition(world) == ("False", "ServiceAccountNotFound")
    assert "the pods keep its token" in world.status()["stages"]["message"]


def test_what_nodes_lack_is_said_before_the_account() -> None:
    """It is worse."""
    world = gpus(WITH_AGENT)
    settle(world)
    world.without_devices.add("a")
    turns(world, 12)
    assert condition(world) == ("False", "ResourceMissing")
