"""The pods of a snapshot, by driver: all of them in one sequence, which is not put together."""

import pytest

from driver_builder.observed.by_driver import PodsByDriver, of_driver
from driver_builder.observed.snapshot import DriverPod
from tests.support.driver_builder.factories import pod, ready_snapshot

A, B, C = (pod(ready_snapshot(), f"node-{name}") for name in "abc")
GROUPS = {"n/one": (A, B), "n/two": (C,)}


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
        pytest.param(PodsByDriver({**GROUPS, "n/three": ()}), True, id="a group without pods"),
        pytest.param((A, C, B), False, id="another order"),
        pytest.param(PodsByDriver({"n/one": (A, B)}), False, id="a group less"),
        pytest.param("abc", False, id="something else"),
    ],
)
def test_pods_are_compared(other: object, is_equal: bool) -> None:
    """By what they are, however they are grouped."""
    assert (PodsByDriver(GROUPS) == other) is is_equal


@pytest.mark.parametrize(("driver", "expected"), [("n/one", (A, B)), ("n/two", (C,)), ("n/none", ())])
def test_a_drivers_pods_are_its_group(driver: str, expected: tuple[DriverPod, ...]) -> None:
    """The very tuple: whoever has it sees by that alone that nothing has changed."""
    found = of_driver(PodsByDriver(GROUPS), driver)
    assert found == expected
    assert found is GROUPS.get(driver, found)
