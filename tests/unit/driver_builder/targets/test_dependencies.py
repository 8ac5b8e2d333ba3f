"""Which drivers of a namespace load before others: missing ones and cycles stop those that name them, and no others."""

from dataclasses import replace

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.reasons import Reason
from driver_builder.model.driver_key import DriverKey
from driver_builder.targets.dependencies import dependencies, unload_order
from tests.support.driver_builder.factories import driver

Found = dict[str, tuple[list[str], Reason | None, list[str]]]


def named(name: str, *needed: str, namespace: str = "driverwright", version: str = "1") -> DriverContainer:
    """Make a driver of one module, which has its name."""
    changes = {
        "version": version,
        "module": {"names": [name]},
        "dependsOn": [{"name": other} for other in needed] or None,
    }
    return replace(driver(name, spec_changes=changes), namespace=namespace)


def found(*drivers: DriverContainer) -> Found:
    """Return of each driver what it waits for, what stops it, and who depends on it."""
    return {
        key.partition("/")[2]: (
            [other.partition("/")[2] for other, _ in item.first],
            item.obstacle.reason if item.obstacle else None,
            [other.partition("/")[2] for other in item.dependents],
        )
        for key, item in dependencies(drivers).items()
    }


@pytest.mark.parametrize(
    ("drivers", "wanted"),
    [
        pytest.param((named("a"), named("b")), {}, id="none"),
        pytest.param((named("a"), named("b", "a")), {"a": ([], None, ["b"]), "b": (["a"], None, [])}, id="one"),
        pytest.param(
            (named("a"), named("b", "a"), named("c", "b", "a")),
            {"a": ([], None, ["b", "c"]), "b": (["a"], None, ["c"]), "c": (["b", "a"], None, [])},
            id="a chain",
        ),
        pytest.param((named("b", "a"),), {"b": ([], Reason.DEPENDENCY_NOT_FOUND, [])}, id="missing"),
        pytest.param(
            (named("a", namespace="other"), named("b", "a")),
            {"b": ([], Reason.DEPENDENCY_NOT_FOUND, [])},
            id="in another namespace",
        ),
        pytest.param((named("a", "a"),), {"a": (["a"], Reason.DEPENDENCY_CYCLE, [])}, id="itself"),
        pytest.param(
            (named("a", "b"), named("b", "a"), named("c", "a")),
            {
                "a": (["b"], Reason.DEPENDENCY_CYCLE, ["c"]),
                "b": (["a"], Reason.DEPENDENCY_CYCLE, []),
                "c": (["a"], None, []),
            },
            id="a cycle, and one beside it",
        ),
        pytest.param(
            (named("a", version="-"), named("b", "a")),
            {"a": ([], None, ["b"]), "b": (["a"], Reason.WAITING_FOR_DEPENDENCY, [])},
            id="invalid",
        ),
    ],
)
def test_who_waits_for_whom(drivers: tuple[DriverContainer, ...], wanted: Found) -> None:
    """Drivers in a cycle do not keep each other: both could never be deleted."""
    assert found(*drivers) == wanted


def test_a_cycle_is_shown_as_it_is_walked() -> None:
    """The shortest way back, with every driver on it."""
    item = dependencies((named("a", "b"), named("b", "c"), named("c", "a", "b")))[DriverKey("driverwright/a")]
    assert item.obstacle is not None
    assert item.obstacle.message == (
        "spec.dependsOn has a cycle: driverwright/a depends on driverwright/b depends on driverwright/c depends on"
        " driverwright/a"
    )


@pytest.mark.parametrize(
    ("drivers", "expected"),
    [
        pytest.param((named("a"),), [], id="none"),
        pytest.param((named("a"), named("b", "a"), named("c", "b")), ["c", "b"], id="a chain"),
        pytest.param((named("a"), named("b", "a", "c"), named("c", "a")), ["b", "c"], id="one directly and by another"),
        pytest.param((named("a"), named("b", "a", "c"), named("c", "b")), ["b"], id="a cycle beside it"),
    ],
)
def test_the_last_of_the_order_is_unloaded_first(drivers: tuple[DriverContainer, ...], expected: list[str]) -> None:
    """All that depend on a driver, directly or not."""
    order = unload_order(DriverKey("driverwright/a"), dependencies(drivers))
    assert [key.name for key in order] == expected
