"""Two drivers that offer one resource on one node: one keeps it, the stages of the other do not come there."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.errors import InvalidDriver
from driver_builder.model import permissions
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import Permissions
from driver_builder.objects.plugin import PluginSet
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.snapshot.inventory import Node
from driver_builder.targets.resource_conflicts import resource_conflicts, words
from tests.support.driver_builder.factories import NAMESPACE, driver, node, snapshot

OLD, NEW = DriverKey("driverwright/old"), DriverKey("driverwright/new")
AGENT: dict[str, Any] = {"resource": {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}}
VENDOR: dict[str, Any] = {"image": "r.io/plugin:1", "resourceName": "example.com/edu"}
READY = {"driverwright.io/driverwright.new.ready": "1"}


def offering(name: str, *, age: float, plugin: dict[str, Any] | None = None, **changes: Any) -> DriverContainer:
    """Make a driver with a device plugin; a greater age is older."""
    stages = {"devicePlugin": AGENT if plugin is None else plugin}
    return replace(driver(name, spec_changes={"stages": stages, **changes}), created_at=1000.0 - age)


def labelled(key: DriverKey, *stages: Stage) -> dict[str, str]:
    """Return the labels of stages of a driver."""
    return {stage_label(key, stage): "true" for stage in stages}


def leaving(labels: dict[str, str]) -> Node:
    """Make a node that records that nothing of the newer driver may run there for now."""
    made = node(labels=labels)
    return replace(made, annotations={**made.annotations, stage_label(NEW, Stage.RUN): "1"})


@pytest.mark.parametrize(
    ("at", "loser", "keeper"),
    [
        pytest.param(node(), NEW, OLD, id="neither is there: the older one"),
        pytest.param(node(labels=labelled(NEW, Stage.RUN)), OLD, NEW, id="the newer one may run there"),
        pytest.param(
            node(labels={**labelled(NEW, Stage.RUN, Stage.PLUG), **labelled(OLD, Stage.RUN)}), OLD, NEW,
            id="the plugin of the newer one is there",
        ),
        pytest.param(
            node(labels={**labelled(NEW, Stage.RUN), **labelled(OLD, Stage.RUN)}), NEW, OLD,
            id="both may run there: the older one",
        ),
        pytest.param(leaving(READY), OLD, NEW, id="the newer one is being replaced"),
        pytest.param(leaving({}), NEW, OLD, id="the newer one was there before the last boot"),
    ],
)  # fmt: skip
def test_whose_stages_are_there_keeps_the_resource(at: Node, loser: str, keeper: str) -> None:
    """Otherwise the older DriverContainer does."""
    seen = snapshot(at, drivers=(offering("old", age=2), offering("new", age=1)))
    assert resource_conflicts(seen, Permissions(), has_agent=True) == {loser: {"node-a": keeper}}


@pytest.mark.parametrize(
    ("plugin", "allowed", "has_agent"),
    [
        pytest.param(VENDOR, permissions.read({"allowed_base_images": "registry.example.com/*"}), True, id="image"),
        pytest.param(AGENT, Permissions(), False, id="no image of the agent"),
    ],
)
def test_a_driver_that_cannot_have_its_plugin_keeps_nothing(
    plugin: dict[str, Any], allowed: Permissions, has_agent: bool
) -> None:
    """Others would wait for a resource that nobody offers."""
    theirs = VENDOR if plugin is AGENT else AGENT
    seen = snapshot(node(), drivers=(offering("old", age=2, plugin=plugin), offering("new", age=1, plugin=theirs)))
    assert resource_conflicts(seen, allowed, has_agent=has_agent) == {OLD: {"node-a": NEW}}


@pytest.mark.parametrize(("labels", "waits"), [({}, False), (labelled(OLD, Stage.RUN), True)], ids=["gone", "there"])
def test_a_driver_that_is_being_deleted_keeps_it_until_its_stages_leave(labels: dict[str, str], waits: bool) -> None:
    """Whatever it selects."""
    going = replace(offering("old", age=2), deleting=True)
    seen = snapshot(node(labels=labels), drivers=(going, offering("new", age=1)))
    assert resource_conflicts(seen, Permissions(), has_agent=True) == ({NEW: {"node-a": OLD}} if waits else {})


@pytest.mark.parametrize("offers", ["example.com/edu", "example.com/else"])
@pytest.mark.parametrize(("labels", "waits"), [({}, False), (labelled(OLD, Stage.RUN), True)], ids=["gone", "there"])
def test_a_driver_whose_spec_is_invalid_keeps_what_its_plugin_offers(
    offers: str, labels: dict[str, str], waits: bool
) -> None:
    """Its pods go on where they are: another plugin would register over them."""
    broken = replace(offering("old", age=2), spec=InvalidDriver("spec.module: no"))
    seen = snapshot(node(labels=labels), drivers=(broken, offering("new", age=1)))
    plugged = PluginSet(namespace=NAMESPACE, name="old-plug", uid="1", driver=OLD, resource=offers)
    found = resource_conflicts(replace(seen, plugin_sets=(plugged,)), Permissions(), has_agent=True)
    assert found == ({NEW: {"node-a": OLD}} if waits and offers == "example.com/edu" else {})


@pytest.mark.parametrize(
    "changes",
    [{"plugin": {**VENDOR, "resourceName": "example.com/else"}}, {"nodeSelector": {"pool": "other"}}],
    ids=["resource", "nodes"],
)
def test_drivers_that_do_not_meet_have_no_conflict(changes: dict[str, Any]) -> None:
    """Of another resource, or on other nodes."""
    seen = snapshot(node(), drivers=(offering("old", age=2), offering("new", age=1, **changes)))
    assert resource_conflicts(seen, Permissions(), has_agent=True) == {}


def test_of_three_drivers_one_keeps_it() -> None:
    """The others name that one."""
    drivers = (offering("old", age=3), offering("new", age=2), offering("newest", age=1))
    found = resource_conflicts(snapshot(node(), drivers=drivers), Permissions(), has_agent=True)
    assert found == {NEW: {"node-a": OLD}, "driverwright/newest": {"node-a": OLD}}


NVIDIA: dict[str, Any] = {"nvidia": {}}
CARD: dict[str, Any] = {"image": "r.io/plugin:1", "resourceName": "nvidia.com/gpu"}
MIG: dict[str, Any] = {"image": "r.io/plugin:1", "resourceName": "nvidia.com/mig-1g.5gb"}


@pytest.mark.parametrize(
    ("old", "new", "meet"),
    [
        pytest.param(NVIDIA, NVIDIA, True, id="twice"),
        pytest.param(NVIDIA, CARD, True, id="before a vendor's full cards"),
        pytest.param(MIG, NVIDIA, True, id="after a vendor's MIG devices"),
        pytest.param(NVIDIA, AGENT, False, id="beside another domain"),
        pytest.param(CARD, MIG, False, id="two names of the domain without it"),
    ],
)
def test_nvidias_devices_claim_their_whole_domain(old: dict[str, Any], new: dict[str, Any], meet: bool) -> None:
    """Which resources come depends on the cards: no other driver of the node offers one in it."""
    seen = snapshot(node(), drivers=(offering("old", age=2, plugin=old), offering("new", age=1, plugin=new)))
    assert resource_conflicts(seen, Permissions(), has_agent=True) == ({NEW: {"node-a": OLD}} if meet else {})


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(3, {key: {"node-a": "driverwright/cards"} for key in (OLD, NEW)}, id="the oldest"),
        pytest.param(1.5, {"driverwright/cards": {"node-a": OLD}}, id="the second"),
        pytest.param(0, {"driverwright/cards": {"node-a": OLD}}, id="the youngest"),
    ],
)
def test_drivers_of_other_names_in_the_domain_do_not_meet(age: float, expected: dict[str, dict[str, str]]) -> None:
    """Only who claims the domain leaves it to one of them, or keeps it from both."""
    others = (offering("old", age=2, plugin=CARD), offering("new", age=1, plugin=MIG))
    seen = snapshot(node(), drivers=(*others, offering("cards", age=age, plugin=NVIDIA)))
    assert resource_conflicts(seen, Permissions(), has_agent=True) == expected


@pytest.mark.parametrize(
    ("known", "keeper"),
    [
        pytest.param("nvidia.com/gpu", NEW, id="a vendor's plugin of the domain before"),
        pytest.param("nvidia.com/", NEW, id="the same"),
        pytest.param("example.com/edu", OLD, id="another resource before"),
    ],
)
def test_the_labels_of_a_plugin_stand_for_what_it_has_claimed(known: str, keeper: str) -> None:
    """An edit that names the domain takes nothing, unless the plugin has offered something in it."""
    drivers = (offering("old", age=2, plugin=NVIDIA), offering("new", age=1, plugin=NVIDIA))
    seen = snapshot(node(labels=labelled(NEW, Stage.RUN, Stage.PLUG)), drivers=drivers)
    plugged = PluginSet(namespace=NAMESPACE, name="new-plug", uid="1", driver=NEW, resource=known)
    found = resource_conflicts(replace(seen, plugin_sets=(plugged,)), Permissions(), has_agent=True)
    assert found == {(OLD if keeper == NEW else NEW): {"node-a": keeper}}


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("nvidia.com/gpu", "drivers a/x and a/y both offer nvidia.com/gpu; a/y keeps it"),
        ("nvidia.com/", "drivers a/x and a/y both offer resources in nvidia.com/; a/y keeps them"),
    ],
    ids=["a resource", "a domain"],
)
def test_the_message_names_both_drivers_and_who_keeps_what(claim: str, expected: str) -> None:
    """It is the same in the status, in Events and in ``explain``."""
    assert words("a/x", "a/y", claim) == expected
