"""The pods of a snapshot, by driver: all of them in one sequence, which is not put together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.persistent import cut
from driver_builder.model.driver_key import DriverKey
from driver_builder.snapshot.by_driver import NO_PODS, PodsByDriver, PodsOfDriver, pods_of
from driver_builder.snapshot.snapshot import DriverPod
from tests.support.driver_builder.factories import pod, ready_snapshot

A, B, C = (pod(ready_snapshot(), f"node-{name}") for name in "abc")
ONE, TWO = DriverKey("n/one"), DriverKey("n/two")
GROUPS = {ONE: pods_of((A, B), A.driver), TWO: pods_of((C,), A.driver)}


def test_all_pods_are_a_sequence() -> None:
    """In the order of the groups; it equals any sequence of the same pods."""
    pods = PodsByDriver(GROUPS)
    assert list(pods) == [A, B, C]
    assert (len(pods), pods[2], pods[1:]) == (3, C, (B, C))


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        pytest.param((A, B, C), True, id="a tuple"),
        pytest.param(PodsByDriver(dict(GROUPS)), True, id="the same groups"),
        pytest.param(PodsByDriver({**GROUPS, DriverKey("n/three"): NO_PODS}), True, id="a group without pods"),
        pytest.param((A, C, B), False, id="another order"),
        pytest.param(PodsByDriver({ONE: GROUPS[ONE]}), False, id="a group less"),
        pytest.param("abc", False, id="something else"),
    ],
)
def test_pods_are_compared(other: object, is_equal: bool) -> None:
    """By what they are, however they are grouped."""
    assert (PodsByDriver(GROUPS) == other) is is_equal


@pytest.mark.parametrize(("driver", "expected"), [(ONE, (A, B)), (TWO, (C,)), (DriverKey("n/none"), ())])
def test_a_drivers_pods_are_its_group(driver: DriverKey, expected: tuple[DriverPod, ...]) -> None:
    """The very object: who has it sees by that alone that nothing has changed."""
    found = pods_of(PodsByDriver(GROUPS), driver)
    assert found == expected
    assert found is GROUPS.get(driver, found)


def test_the_pods_of_a_node_that_stay_come_first() -> None:
    """Others follow, whatever order they came in."""
    leaving, staying = replace(A, name="a", deleting=True), replace(A, name="b")
    found = pods_of((B, leaving, staying), A.driver)
    assert (found.on("node-a"), found.on("node-b"), found.on("node-c")) == ((staying, leaving), (B,), ())


VARIANTS = [replace(pod, name=name, deleting=is_deleting) for pod in (A, B, C) for name in "xy"
            for is_deleting in (False, True)]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(VARIANTS), unique_by=id), min_size=2, max_size=5))
def test_pods_made_from_those_before_are_as_those_made_anew(steps: list[list[DriverPod]]) -> None:
    """On each node, whatever came, went or stayed; and nodes where nothing did have the same objects."""
    known = NO_PODS
    for step in steps:
        found, anew = PodsOfDriver.of(cut(step), known), PodsOfDriver.of(cut(step), NO_PODS)
        assert found == anew == step
        assert found.by_node == anew.by_node
        touched = {pod.node for pod in VARIANTS if any(pod is one for one in step) != any(pod is one for one in known)}
        assert found.by_node.differing(known.by_node) <= touched
        known = found
