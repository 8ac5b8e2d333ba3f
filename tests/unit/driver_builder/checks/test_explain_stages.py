"""The checks after the ready label: which stage a node has not reached, and what to do."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.checks.explain import explain
from driver_builder.checks.explanation import CHECKS, Explanation
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.dra_world import ACCOUNT, PLUGIN, DraWorld
from tests.support.driver_builder.factories import KERNEL, SETTINGS
from tests.unit.driver_builder.world.test_world_stages import CHAIN, Watched, fleet

WITH_AGENT = replace(SETTINGS, device_agent_image="registry.example.com/device-agent:1")


def settled(**changes: Any) -> Watched:
    """Make a world in which everything has happened."""
    world = fleet("a", **changes)
    world.settle()
    return world


def explained(seen: Snapshot) -> Explanation:
    """Explain the only node and the only driver."""
    return explain(seen, seen.nodes[0], seen.drivers[0], WITH_AGENT)


def test_every_stage_has_a_check() -> None:
    """A node where all hold is ready."""
    found = explained(settled(stages=CHAIN).observe())
    assert [step.check for step in found.steps] == [*CHECKS, "run", "plugin", "plgok"]
    assert found.sentence == "ready"


def test_a_resource_that_another_driver_keeps_is_named() -> None:
    """Both drivers are, and what to do."""
    world = settled(stages=CHAIN)
    world.now += 60
    world.add_driver("other", stages=CHAIN)
    world.settle()
    seen = world.observe()
    other = next(item for item in seen.drivers if item.name == "other")
    found = explain(seen, seen.nodes[0], other, WITH_AGENT)
    words = "drivers driverwright/other and driverwright/edu both offer example.com/edu; driverwright/edu keeps it"
    assert found.first_broken is not None
    assert (found.first_broken.check, found.first_broken.message) == ("run", words)
    assert "Name different resources" in found.first_broken.remedy


def test_a_driver_without_stages_has_no_more_checks() -> None:
    """And one with labels alone has one."""
    assert [step.check for step in explained(settled().observe()).steps] == list(CHECKS)
    assert [step.check for step in explained(settled(stages={}).observe()).steps] == [*CHECKS, "run"]


def _without_device(world: Watched) -> None:
    world.without_devices.add("a")
    world.now += 100


def _rebooted(world: Watched) -> None:
    world.invalid["a"] = 2
    world.reboot("a", KERNEL)


@pytest.mark.parametrize(
    ("happens", "name", "words", "step"),
    [
        pytest.param(_without_device, "plugin", "it has no example.com/edu", "logs edu-plug-a", id="no device"),
        pytest.param(_rebooted, "plgok", "PluginValidationFailed: the command failed (1)",
                     "kubectl annotate node a driverwright.io/driverwright.edu.plgok-", id="validation failed"),
    ],
)  # fmt: skip
def test_the_first_stage_that_is_not_reached_is_named(happens: Any, name: str, words: str, step: str) -> None:
    """With what to do."""
    world = settled(stages=CHAIN)
    happens(world)
    for _ in range(3):
        world.settle()
        world.now += 60
    found = explained(world.observe()).first_broken
    assert found is not None
    assert (found.check, words in found.message, step in found.remedy) == (name, True, True), found


def test_what_a_dra_driver_lacks_is_named() -> None:
    """Slices, the right to see them, or nothing."""
    world = DraWorld(replace(SETTINGS, dra_driver_accounts=frozenset({ACCOUNT})))
    world.add_account()
    world.add_node("a", KERNEL)
    world.add_driver(stages=PLUGIN)
    world.settle()
    found = explained(world.observe())
    assert found.sentence == "ready"
    assert "a ResourceSlice has its devices" in found.steps[-1].message
    world.client.forbidden = ("resourceslices",)
    found = explained(world.observe())
    assert "ResourceSlices may not be read" in found.steps[-1].message
    assert "deploy/driver-builder/dra.yaml" in found.steps[-1].remedy
