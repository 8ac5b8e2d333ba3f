"""A DRA driver as the plugin of a driver on a model of a cluster: when it comes, and in which order all leaves."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.cluster import resource_slices
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects.stage_labels import Stage, stage_label
from kube_api.client import Listing, Object
from kube_api.errors import NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, RESOURCE_SLICES, SERVICE_ACCOUNTS
from tests.support.driver_builder.dra_world import ACCOUNT, GPU, PLUGIN, DraWorld
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, SETTINGS

KEY = DriverKey(f"{NAMESPACE}/edu")
VALID, RUN, PLUG = (stage_label(KEY, stage) for stage in (Stage.VALID, Stage.RUN, Stage.PLUG))
EVERY = {VALID, RUN, PLUG}
PLUG_SET = DAEMON_SETS.path(namespace=NAMESPACE, name="edu-plug")
DRIVER = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
ALLOWING = replace(SETTINGS, dra_driver_accounts=frozenset({ACCOUNT}))
DRAIN: dict[str, Any] = {"drain": {"draDrivers": [GPU], "deadline": "300s", "force": True}}


def fleet(
    names: str = "ab", settings: PlanSettings = ALLOWING, *, has_account: bool = True, **changes: Any
) -> DraWorld:
    """Make nodes of one kernel and a driver."""
    world = DraWorld(settings)
    if has_account:
        world.add_account()
    for name in names:
        world.add_node(name, KERNEL)
    world.add_driver(stages=PLUGIN, **changes)
    return world


def turns(world: DraWorld, count: int = 14) -> None:
    """Let so many passes and rounds follow each other, five seconds apart."""
    for _ in range(count):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 5


def labels(world: DraWorld, name: str = "a") -> set[str]:
    """Return the labels of stages that a node has."""
    return world.nodes()[name].keys() & EVERY


def condition(world: DraWorld) -> tuple[str, str, str]:
    """Return what the condition says."""
    (found,) = [item for item in world.status()["conditions"] if item["type"] == "Stages"]
    return found["status"], found["reason"], found["message"]


def test_the_label_comes_with_the_slice_and_the_driver_is_ready_without() -> None:
    """On each node by itself."""
    world = fleet()
    world.without_slices = {"b"}
    turns(world, 20)
    assert (labels(world, "a"), labels(world, "b")) == (EVERY, {VALID, RUN})
    assert condition(world)[:2] == ("False", "ResourceMissing")
    world.without_slices.clear()
    turns(world)
    assert labels(world, "b") == EVERY
    assert condition(world)[:2] == ("True", "StagesReady")


def test_a_slice_that_goes_takes_the_label_after_a_minute() -> None:
    """One that is back before does not."""
    world = fleet("a")
    turns(world)
    world.without_slices = {"a"}
    del world.client.objects[RESOURCE_SLICES.path(name=f"a-{GPU}")]
    turns(world, 6)
    assert labels(world) == EVERY
    turns(world, 12)
    assert labels(world) == {VALID, RUN}


@pytest.mark.parametrize(
    ("settings", "has_account", "reason", "words"),
    [
        pytest.param(SETTINGS, True, "ServiceAccountNotAllowed", "not allowed by --dra-driver-accounts", id="refused"),
        pytest.param(replace(SETTINGS, device_agent_accounts=frozenset({ACCOUNT})), True, "ServiceAccountNotAllowed",
                     "not allowed by --dra-driver-accounts", id="allowed for our agent alone"),
        pytest.param(ALLOWING, False, "ServiceAccountNotFound", f"ServiceAccount {ACCOUNT} does not exist",
                     id="missing"),
    ],
)  # fmt: skip
def test_without_its_account_it_is_not_started(
    settings: PlanSettings, has_account: bool, reason: str, words: str
) -> None:
    """The driver itself is loaded and proven."""
    world = fleet("a", settings, has_account=has_account)
    turns(world)
    assert PLUG_SET not in world.client.objects
    assert labels(world) == {VALID, RUN}
    assert condition(world)[:2] == ("False", reason)
    assert words in condition(world)[2]


def test_an_account_that_is_allowed_no_more_changes_nothing_that_is_there() -> None:
    """Neither the pods nor an edit of them."""
    world = fleet("a")
    turns(world)
    was = world.client.get(PLUG_SET)["spec"]
    world.settings = SETTINGS
    edited = {**PLUGIN["devicePlugin"], "image": "registry.example.com/other:1"}
    world.client.patch(DRIVER, {"spec": {"stages": {"devicePlugin": edited}}})
    turns(world)
    assert world.client.get(PLUG_SET)["spec"] == was
    assert labels(world) == EVERY
    assert condition(world)[:2] == ("False", "ServiceAccountNotAllowed")


def test_an_account_that_is_made_later_starts_it() -> None:
    """It is asked for again."""
    world = fleet("a", has_account=False)
    turns(world, 5)
    world.client.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": "dra"}})
    turns(world)
    assert labels(world) == EVERY


def _unserved(path: str, **_others: Any) -> Listing:
    raise NotFound(f"GET {path}: 404", status=404)


def test_without_the_api_it_is_not_started_and_the_condition_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the API server has it, it comes."""
    monkeypatch.setattr(resource_slices, "SECONDS", 0.0)
    world = fleet("a")
    del world.client.objects["/apis/resource.k8s.io"]
    with monkeypatch.context() as patched:
        pages = world.client.pages
        patched.setattr(
            world.client,
            "pages",
            lambda path, **others: _unserved(path) if "resourceslices" in path else pages(path, **others),
        )
        turns(world, 6)
        assert PLUG_SET not in world.client.objects
        assert condition(world)[:2] == ("False", "DRANotServed")
    turns(world)
    assert labels(world) == EVERY


def test_without_the_right_to_slices_no_label_moves() -> None:
    """The plugin runs all the same."""
    world = fleet()
    turns(world)
    world.client.forbidden = ("resourceslices",)
    world.add_node("c", KERNEL)
    turns(world)
    assert (labels(world, "a"), labels(world, "c")) == (EVERY, {VALID, RUN})
    assert world.dra_drivers_on("c")
    assert condition(world)[:2] == ("False", "ResourceSlicesNotRead")


def upgrade(world: DraWorld) -> None:
    """Want another driver."""
    world.change_source("int y;")
    world.client.patch(DRIVER, {"spec": {"version": "2.0.0"}})


def test_a_drain_ends_the_claims_before_the_dra_driver_leaves() -> None:
    """Users first, as the kubelet ends none without it; then the DRA driver, then the module."""
    world = fleet("a", rollout=DRAIN)
    turns(world)
    path = world.use("a")
    world.seen.clear()
    upgrade(world)
    turns(world, 40)
    assert path not in world.client.objects
    assert world.seen == [("a", "user"), ("a", "plugin"), ("a", "load")]
    assert labels(world) == EVERY
    assert "rollout" not in world.status()


def test_it_leaves_before_the_drivers_that_depend_on_its_own() -> None:
    """It may have devices of theirs open: otherwise none could be unloaded, and the node kept its driver for ever."""
    world = fleet("a", rollout=DRAIN)
    world.add_driver("other", dependsOn=[{"name": "edu"}])
    turns(world, 20)
    path = world.use("a")
    world.seen.clear()
    upgrade(world)
    for _ in range(60):
        world.in_use = {"a"} if world.dra_drivers_on("a") else set()
        turns(world, 1)
    assert path not in world.client.objects
    assert [what for _, what in world.seen] == ["user", "plugin", "load", "load"]
    assert labels(world) == EVERY
    assert "rollout" not in world.status()


def test_without_a_drain_it_leaves_as_every_plugin_does() -> None:
    """The module goes after it."""
    world = fleet("a")
    turns(world)
    world.seen.clear()
    upgrade(world)
    turns(world, 30)
    assert world.seen == [("a", "plugin"), ("a", "load")]
    assert labels(world) == EVERY


def test_an_edit_to_a_device_plugin_takes_account_and_folders_away() -> None:
    """The pod has the default account then, and no token."""
    world = fleet("a")
    turns(world)
    assert world.client.get(PLUG_SET)["spec"]["template"]["spec"]["serviceAccountName"] == "dra"
    made: Object = {"image": "registry.example.com/plugin:1", "resourceName": "example.com/edu", "dra": None}
    world.client.patch(DRIVER, {"spec": {"stages": {"devicePlugin": made}}})
    turns(world)
    pod = world.client.get(PLUG_SET)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("default", False)
    assert [item["hostPath"]["path"] for item in pod["volumes"]] == ["/var/lib/kubelet/device-plugins", "/dev"]


def test_a_driver_that_is_deleted_takes_it_along() -> None:
    """Labels, DaemonSet and pods; slices are the kubelet's."""
    world = fleet("a")
    turns(world)
    world.delete_driver("edu")
    turns(world, 20)
    assert (PLUG_SET in world.client.objects, DRIVER in world.client.objects) == (False, False)
    assert labels(world) == set()
    assert RESOURCE_SLICES.path(name=f"a-{GPU}") not in world.client.objects


@pytest.mark.parametrize("number", range(1, 12))
def test_a_controller_that_is_killed_after_any_action_ends_the_same(number: int) -> None:
    """What was begun is on the Node: no user is left to a kubelet that cannot end it."""
    world = fleet("a", rollout=DRAIN)
    turns(world, 8)
    world.use("a")
    world.seen.clear()
    upgrade(world)
    done = 0

    def kills(_action: Change) -> bool:
        nonlocal done
        done += 1
        return done == number

    for _ in range(40):
        world.reconcile(kills)
        world.finish_builds()
        world.turn()
        world.now += 5
    assert world.kills == 1
    assert world.seen == [("a", "user"), ("a", "plugin"), ("a", "load")]
    assert labels(world) == EVERY
    assert "rollout" not in world.status()


def test_a_budget_keeps_driver_and_dra_driver_on_the_node() -> None:
    """Neither label moves, and the pod is named; once the budget allows it all goes on."""
    world = fleet("a", rollout=DRAIN)
    turns(world, 8)
    path = world.use("a")
    world.client.budgets.add(path)
    world.seen.clear()
    upgrade(world)
    messages = []
    for _ in range(20):
        turns(world, 1)
        messages.append((world.status().get("rollout") or {}).get("message", ""))
        assert labels(world) == EVERY
    assert world.seen == []
    assert any("user-a stays: " in message for message in messages), messages
    world.client.budgets.clear()
    turns(world, 40)
    assert world.seen == [("a", "user"), ("a", "plugin"), ("a", "load")]
    assert labels(world) == EVERY
