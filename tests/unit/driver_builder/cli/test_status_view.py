"""The live table of all drivers, and the rows that are printed when they change."""

from typing import Any

import pytest

from driver_builder.cli import rollout_view, status_view
from driver_builder.cli.rollout_view import RolloutView
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL
from tests.unit.driver_builder.cli.test_rollout_view import WAVE, driver, target

MANY = driver(
    target("RollingOut", kernel="6.1.0-9", ready=1), *(target(kernel=f"6.1.0-{number}") for number in range(20, 40))
)


def views(*objects: dict[str, Any]) -> list[RolloutView]:
    """Read drivers."""
    return [rollout_view.parse(obj) for obj in objects]


def lines(*objects: dict[str, Any], columns: int = 200, height: int = 50, note: str = "") -> list[str]:
    """Write the table, with bars that every encoding has."""
    return status_view.live_lines(views(*objects), bars="#.", columns=columns, height=height, note=note)


def test_a_driver_has_a_line_and_each_of_its_targets_one() -> None:
    """With bars, and the wave beside the driver."""
    obj = driver(target("RollingOut", ready=1), target(kernel=OTHER_KERNEL), wave=WAVE)
    assert [" ".join(line.split()) for line in lines(obj)] == [
        "DRIVER READY STATE MESSAGE",
        "driverwright/edu 1.0.0 #########... 3/4 Rolling 3 of 8 updated, 1 unavailable; waits for node-3",
        f"{KERNEL} debian/amd64 ######...... 1/2 RollingOut 1 of 2",
        f"{OTHER_KERNEL} debian/amd64 ############ 2/2 Ready 2 of 2",
    ]


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        pytest.param(driver(target()), "2/2 Ready", id="ready"),
        pytest.param(driver(target("Building", ready=0)), "0/2 Progressing", id="progressing"),
        pytest.param(driver(target("Failed", ready=0)), "0/2 Degraded", id="degraded"),
        pytest.param(driver(target("Building"), paused=True), "2/2 Paused", id="paused"),
        pytest.param(driver(target(), wave=WAVE, paused=True), "Rolling paused: 3 of 8 updated", id="paused in a wave"),
        pytest.param(driver(target(), wave={**WAVE, "failedNodes": 2}), "1 unavailable, 2 failed;", id="with failures"),
        pytest.param(driver(target(), observed=0), "NotObserved the controller has not observed", id="an older spec"),
        pytest.param(
            driver(conditions=[{"type": "Ready", "status": "False", "message": "no node"}]),
            "0/0 Progressing no node",
            id="no target",
        ),
    ],
)
def test_what_the_driver_as_a_whole_does_is_a_word(obj: dict[str, Any], words: str) -> None:
    """A wave goes before everything but a spec that was not observed yet."""
    assert words in " ".join(lines(obj)[1].split())


@pytest.mark.parametrize("height", [6, 8, 12, 25, 26, 60])
def test_the_table_fits_the_terminal(height: int) -> None:
    """What needs attention stays, the others are counted; a line for the cursor is left."""
    made = lines(MANY, height=height, note="not up to date")
    assert len(made) <= height - 1
    assert made[-1] == "not up to date"
    assert any("6.1.0-9 " in line for line in made)
    left = 22 - sum("/" in line for line in made)
    assert (f"and {left} more lines" in made) == (left > 0)
    assert left == (0 if height >= 25 else 22 - (height - 4))


def test_a_line_that_is_too_long_ends_in_dots() -> None:
    """No line wraps: the table could not be drawn over."""
    assert all(len(line) < 60 for line in lines(driver(target(), wave=WAVE), columns=60))
    assert lines(driver(target(), wave=WAVE), columns=60)[1].endswith("...")


def test_without_a_driver_the_table_says_so() -> None:
    """One line."""
    assert lines() == ["no DriverContainer"]


def rows(*objects: dict[str, Any]) -> dict[status_view.Row, status_view.Row]:
    """Write the rows."""
    return status_view.rows_of(views(*objects))


BEGINNING = driver(target("RollingOut", ready=1), target(kernel=OTHER_KERNEL))


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param((BEGINNING,), (BEGINNING,), [], id="nothing"),
        pytest.param(
            (BEGINNING,),
            (driver(target(), target(kernel=OTHER_KERNEL)),),
            [f"edu {KERNEL} debian/amd64 2 2 Ready R 2 of 2"],
            id="a target",
        ),
        pytest.param(
            (driver(target()),),
            (driver(target(), wave=WAVE),),
            ["edu wave - 8 3 Rolling - 3 of 8 updated, 1 unavailable; waits for node-3"],
            id="a wave begins",
        ),
        pytest.param(
            (driver(target(), wave=WAVE),), (driver(target()),), ["edu wave - 0 0 Gone -"], id="a wave is over"
        ),
        pytest.param((BEGINNING,), (driver(target("RollingOut", ready=1)),), [
            f"edu {OTHER_KERNEL} debian/amd64 0 0 Gone -"
        ], id="a target is gone"),
        pytest.param(
            (), (driver(observed=0),),
            ["edu - - 0 0 - - driverwright/edu 1.0.0: the controller has not observed this version of the spec yet"],
            id="a new driver",
        ),
        pytest.param(
            (driver(observed=0),), (driver(target()),), [f"edu {KERNEL} debian/amd64 2 2 Ready R 2 of 2"],
            id="its first target",
        ),
        pytest.param((driver(observed=0),), (), ["edu - - 0 0 Gone -"], id="a driver is gone"),
    ],
)  # fmt: skip
def test_what_changed_is_a_row(
    before: tuple[dict[str, Any], ...], after: tuple[dict[str, Any], ...], news: list[str]
) -> None:
    """Each target, and the wave; what is gone is said once."""
    made = status_view.changed_rows(rows(*before), rows(*after))
    assert [" ".join(" ".join(row).split()).removeprefix("driverwright ") for row in made] == news


def test_columns_grow_only() -> None:
    """Rows that are printed later stand below the earlier ones."""
    first = status_view.widths_of([("aaa", "b")], (2, 2))
    assert (first, status_view.widths_of([], first)) == ((3, 2), (3, 2))
    assert status_view.joined(("a", "b"), first) == "a     b"
