"""Admins who edit again and again while waves are under way: nothing is taken away for that, and all ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api import names
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.examples import few
from tests.unit.driver_builder.world import test_world_drain as drains
from tests.unit.driver_builder.world import test_world_order as order
from tests.unit.driver_builder.world import test_world_rollout as waves
from tests.unit.driver_builder.world.test_world_rollout import NODE_NAMES, Step, WaveWorld, live_through

EDU = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
READY = names.ready_label(NAMESPACE, "edu")
VALIDATION = {**drains.COMMAND, "retries": 0}


class EditedWorld(drains.DrainWorld):
    """A world whose roll-out has the rules that the driver's spec has at that moment."""

    def edit(self, body: Object) -> None:
        """Edit the driver, if there is one."""
        if EDU in self.client.objects:
            self.client.patch(EDU, body)

    def validate(self, validation: Object | None) -> None:
        """Set what validates the driver."""
        self.edit({"spec": {"validation": None}})
        self.edit({"spec": {"validation": validation}})

    def add_again(self) -> None:
        """Add the driver once it is gone."""
        if EDU not in self.client.objects:
            self.add_driver("edu", rollout={})
            self.client.objects[EDU]["metadata"]["uid"] = f"uid-{self.now}"

    def heal(self) -> None:
        """Let the driver be as it was meant in the beginning, whatever was edited."""
        self.turn()
        self.invalid.clear()
        super().heal()
        for _ in range(waves.BOUND if "deletionTimestamp" in self._metadata() else 0):
            self.one_round()
        self.add_again()
        pause = {"annotations": {names.PAUSE_ANNOTATION: None}}
        plain = dict.fromkeys(("strategy", "windows", "order", "canary", "canaryNodeSelector", "soak"))
        self.edit({"metadata": pause, "spec": {"version": "1.0.0", "rollout": {**plain, "maxUnavailable": 1}}})

    def _metadata(self) -> Object:
        found: Object = self.client.objects.get(EDU, {"metadata": {}})["metadata"]
        return found


def _roll(world: WaveWorld, rollout: Object) -> None:
    assert isinstance(world, EditedWorld)
    world.edit({"spec": {"rollout": rollout}})


def _edit(world: WaveWorld, body: Object) -> None:
    assert isinstance(world, EditedWorld)
    world.edit(body)


def _validate(world: WaveWorld, validation: Object | None) -> None:
    assert isinstance(world, EditedWorld)
    world.validate(validation)


def _fail(world: WaveWorld, node: str, number: int) -> None:
    world.invalid[node] = number


def _delete(world: WaveWorld) -> None:
    assert isinstance(world, EditedWorld)
    if EDU in world.client.objects:
        world.delete_driver("edu")
    else:
        world.add_again()


_NO_CANARY: Object = {"canary": None, "canaryNodeSelector": None, "soak": None}
rollouts = st.sampled_from(
    [
        *({"maxUnavailable": number} for number in (0, 1, 2)),
        *({"maxFailed": number} for number in (0, 1, 2)),
        *({"drain": drain} for drain in (None, drains.DRAIN)),
        *({"strategy": strategy} for strategy in ("waves", "immediate")),
        *({"order": way} for way in ("nodeName", "nodeLabel")),
        {"windows": None},
        {"windows": [{"cron": "*/5 * * * *", "duration": "1m"}]},
        {"windows": [{"cron": "0 3 1 1 *", "duration": "1h"}]},
        _NO_CANARY,
        {**_NO_CANARY, "canary": 1, "soak": "50s"},
        {**_NO_CANARY, "canaryNodeSelector": {"tier": "none"}},
    ]
)
bodies: st.SearchStrategy[Object] = st.sampled_from(
    [
        *({"metadata": {"annotations": {names.PAUSE_ANNOTATION: value}}} for value in ("true", None)),
        {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: None}}},
        *({"spec": {"version": version}} for version in ("2.0.0", "not valid!", "1.0.0")),
        *({"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}} for value in "12"),
    ]
)
steps = st.one_of(
    waves.steps,
    waves._step("edit the roll-out", _roll, rollouts),
    waves._step("edit the driver", _edit, bodies),
    waves._step("validate", _validate, st.sampled_from([None, VALIDATION])),
    waves._step("a validation fails", _fail, waves.nodes, st.integers(0, 3)),
    waves._step("delete or add", _delete),
)


@pytest.mark.costly
@few(5)
@given(
    st.lists(waves.kernels, min_size=1, max_size=3),
    st.sampled_from([{}, {"drain": drains.DRAIN}, {"maxFailed": 1}]),
    st.sampled_from([None, VALIDATION]),
    st.lists(steps, max_size=10),
)
def test_whatever_is_edited_in_a_wave_nothing_is_left_and_all_ends(
    first: list[str], rollout: Object, validation: Object | None, history: list[Step]
) -> None:
    """Each working driver is taken by the rules of that moment, and in the end every node has what is wanted."""
    world = EditedWorld()
    for name, kernel in zip(NODE_NAMES, first, strict=False):
        world.add_node(name, kernel)
    world.add_driver("edu", rollout=rollout, validation=validation)
    world.arrive()
    live_through(world, history)
    drains.assert_all_is_well(world)
    assert world.wave_labels() == []


def edit(world: order.OrderWorld, edits: list[tuple[str, int]]) -> None:
    """Edit drivers one after the other; after each edit so many rounds pass."""
    for number, (name, rounds) in enumerate(edits):
        world.edit(name, f"int edit_{number};")
        world.rounds(rounds, lambda _action: False)


def assert_arrives(world: order.OrderWorld) -> None:
    """Let all waves end, which no budget keeps apart any more."""
    world.budget = 2
    world.arrive()
    order.assert_all_is_well(world)


@pytest.mark.costly
@few(3)
@given(
    st.sampled_from([1, 2]),
    st.lists(st.tuples(st.sampled_from(list(order.MODULES)), st.integers(0, 14)), min_size=2, max_size=6),
)
def test_drivers_that_depend_on_each_other_load_only_what_fits_however_often_they_are_edited(
    budget: int, edits: list[tuple[str, int]]
) -> None:
    """No load fails on the way."""
    world = order.ordered(2, third=True, budget=budget)
    edit(world, edits)
    assert_arrives(world)
    assert world.failed == []


def test_waves_of_two_drivers_do_not_keep_each_other_from_the_images_that_both_need() -> None:
    """One needs those of the others on a node, the second one on another node, and each driver gets one at a time."""
    world = order.ordered(2, third=True)
    edit(world, [("mem", 13), ("ofed", 9), ("app", 10), ("mem", 9)])
    assert_arrives(world)


@pytest.mark.parametrize(
    ("budget", "edits"),
    [
        (2, [("mem", 13), ("ofed", 9), ("ofed", 0)]),
        (1, [("mem", 11), ("mem", 6), ("ofed", 0)]),
        (2, [("mem", 2), ("mem", 11), ("ofed", 10), ("mem", 1)]),
    ],
    ids=["the wave before was over", "the next image is not wanted any more", "the wave before ends in this moment"],
)
@pytest.mark.parametrize("builds", ["", "fail"])
def test_a_driver_that_yields_is_loaded_again_only_over_what_it_was_made_for(
    budget: int, edits: list[tuple[str, int]], builds: str
) -> None:
    """Another edit comes while it is unloaded; it does not wait for what is built then, and that may fail as well."""
    world = order.ordered(2, third=True, budget=budget)
    edit(world, edits)
    assert world.down()
    if builds:
        world.fail_builds = 1000
        world.rounds(15, lambda _action: False)
        assert world.down() == set()
        assert world.failed == []
    world.fail_builds = 0
    assert_arrives(world)
    assert world.failed == []


def test_no_wave_ends_before_those_of_drivers_that_need_the_image_of_before() -> None:
    """The last one has a wave of its own, and has an image of before that fits that of the one below it."""
    world = order.ordered(2, third=True)
    edit(world, [("mem", 14), ("app", 10), ("app", 3), ("ofed", 10), ("mem", 4)])
    assert_arrives(world)
    assert world.failed == []
