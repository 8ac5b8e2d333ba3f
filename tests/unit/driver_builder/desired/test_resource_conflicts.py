"""Two drivers that offer one resource on one node: one keeps it, the stages of the other do not come there."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.desired.resource_conflicts import resource_conflicts
from driver_builder.errors import InvalidDriver
from driver_builder.model import permissions
from driver_builder.model.permissions import Permissions
from driver_builder.objects.plugin import PluginSet
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.observed.inventory import Node
from tests.support.driver_builder.factories import NAMESPACE, driver, node, snapshot

OLD, NEW = "driverwright/old", "driverwright/new"
AGENT: dict[str, Any] = {"resource": {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}}
VENDOR: dict[str, Any] = {"image": "r.io/plugin:1", "resourceName": "example.com/edu"}
READY = {"driverwright.io/driverwright.new.ready": "1"}


def offering(name: str, *, age: float, plugin: dict[str, Any] | None = None, **changes: Any) -> DriverContainer:
    """Make a driver with a device plugin; a greater age is older."""
    stages = {"devicePlugin": AGENT if plugin is None else plugin}
    return replace(driver(name, spec_changes={"stages": stages, **changes}), created_at=1000.0 - age)


def labelled(key: str, *stages: Stage) -> dict[str, str]:
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
