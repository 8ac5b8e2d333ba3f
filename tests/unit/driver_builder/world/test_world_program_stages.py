"""Validation and stages beside images whose own program loads the modules, on a model of a cluster."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.nodes.changes import Change, Taking
from tests.support.driver_builder.changes import moved, pods_replaced
from tests.support.examples import IS_FAST
from tests.unit.driver_builder.world.test_world_drain import DRAIN
from tests.unit.driver_builder.world.test_world_programs import (
    FIRST,
    NODE_NAMES,
    OURS,
    SECOND,
    ProgramWorld,
)
from tests.unit.driver_builder.world.test_world_stages import (
    CHAIN,
    EVERY,
    ORDERS,
    PLUG,
    RUN,
    VALID,
    VALIDATION,
    WITH_AGENT,
    condition,
    stages,
)


class ChainWorld(ProgramWorld):
    """A world where the whole chain follows a program: no program is told to end under a plugin."""

    def __init__(self, *, rollout: Any) -> None:
        super().__init__(rollout=rollout)
        self.settings = replace(WITH_AGENT, template_versions=self.settings.template_versions)
        self.seen: dict[str, list[set[str]]] = {name: [] for name in NODE_NAMES}
        """The labels of stages that each node had, in this order."""
        self.edit(stages=CHAIN, validation=VALIDATION)

    def steps(self) -> Any:
        """Record the stages after each step; what one reconcile writes on a Node is one request."""
        return [step for each in super().steps() for step in (each, self._record)]

    def _record(self) -> None:
        for name, now in stages(self).items():
            if self.seen[name][-1:] != [now]:
                self.seen[name].append(now)

    def look(self, action: Change) -> bool:
        """Check that the plugin has left where a program is told to end."""
        taking: list[Taking] = [*pods_replaced([action]), *moved([action])]
        for taken in taking:
            if taken.why == "the wave has ended":
                continue
            running = [pod for pod in self.programs() if pod["spec"]["nodeName"] == taken.node]
            plugins = [pod["metadata"]["name"] for pod in self.pods_on(taken.node) if is_plugin(pod)]
            assert not running or plugins == [], f"{plugins} on {taken.node} when its program ends"
        return super().look(action)


def is_plugin(pod: Any) -> bool:
    """Return whether a pod is a device plugin's."""
    return str(pod["metadata"]["name"]).startswith("edu-plug-")


def world(image: str = FIRST) -> ChainWorld:
    """Make a world of three nodes where the chain is proven."""
    made = ChainWorld(rollout={"drain": DRAIN})
    made.want(image)
    made.arrive()
    made.assert_all_have(image)
    assert stages(made) == dict.fromkeys(NODE_NAMES, EVERY)
    return made


def test_each_stage_follows_the_program_that_is_proven() -> None:
    """Proof, validation, plugin and its validation, one after the other, each once per node."""
    seen = world()
    assert seen.seen["node-0"] == [set(), {VALID, RUN}, {VALID, RUN, PLUG}, EVERY]
    for ran in (seen.validations, seen.plugin_validations):
        assert sorted(node for _, node, _ in ran) == list(NODE_NAMES)
    assert condition(seen) == ("True", "StagesReady")


@pytest.mark.parametrize("kills", [(), *((at,) for at in range(4, 60, 18 if IS_FAST else 5))], ids=str)
@pytest.mark.parametrize(("before", "after"), [(FIRST, SECOND), (FIRST, OURS), (OURS, SECOND)],
                         ids=["programs", "to our loader", "from our loader"])  # fmt: skip
def test_a_wave_takes_the_plugin_before_the_program_ends(before: str, after: str, kills: tuple[int, ...]) -> None:
    """And all of it comes back in order, validated anew."""
    seen = world(before)
    seen.seen = {name: [] for name in NODE_NAMES}
    seen.want(after)
    seen.arrive(kills=kills)
    seen.assert_all_have(after)
    assert stages(seen) == dict.fromkeys(NODE_NAMES, EVERY)
    for labels in seen.seen.values():
        # A controller that is killed here has written a part of a request.
        assert kills or [item for item in labels if item not in ORDERS] == []
        assert any(RUN not in item for item in labels)
    assert (len(seen.validations), len(seen.plugin_validations)) == (2 * len(NODE_NAMES), 2 * len(NODE_NAMES))


@pytest.mark.parametrize(("before", "after"), [(FIRST, SECOND), (FIRST, OURS), (OURS, SECOND)],
                         ids=["programs", "to our loader", "from our loader"])  # fmt: skip
def test_a_validation_that_fails_gives_the_node_back_with_its_chain(before: str, after: str) -> None:
    """What the next image loads computes wrongly: one node gets the image of before and its plugin again."""
    seen = world(before)
    seen.invalid["node-0"] = VALIDATION["retries"] + 1
    seen.want(after)
    for _ in range(4):
        seen.arrive()
        # The command runs again after a while.
        seen.now += 60
    seen.assert_all_have(before)
    assert stages(seen) == dict.fromkeys(NODE_NAMES, EVERY)
    assert set(seen.replaced) <= {"node-0"}
    assert seen.status()["targets"][0]["reason"] == "RolloutHalted"
