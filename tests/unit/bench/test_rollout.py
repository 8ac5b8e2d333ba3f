"""``bench/rollout.py``: a small fleet is upgraded to its end, and figures are judged."""

import pytest

from bench.rollout import ROWS, part_of, table, verdict
from bench.rollout_parts.upgrade import Case, Upgrade

FIGURES = {row.key: 2.0 for row in ROWS} | {"time ratio": 1.01}
ROW_OF = {row.key: row for row in ROWS}


@pytest.mark.parametrize("budget", ["5", "25%"])
def test_a_fleet_is_upgraded_within_its_budget(budget: str) -> None:
    """Every node is proven, and each costs its image, its label, its proof, and the label's removal."""
    upgrade = Upgrade(Case(12, budget, kernels=2))
    figures = upgrade.run()
    assert (figures["upgraded"], figures["max unavailable"], figures["ideal seconds"]) == (
        12,
        5 if budget == "5" else 3,
        90.0 if budget == "5" else 120.0,
    )
    assert 3.0 <= figures["by kind"]["PATCH nodes"] <= 4.0
    assert (figures["by kind"]["POST pods"], figures["by kind"]["DELETE pods"]) == (1.0, 1.0)
    assert figures["seconds"] > 0.8 * figures["ideal seconds"]
    assert upgrade.plans[-1].actions == ()


def test_a_part_of_a_wave_is_measured() -> None:
    """After as many nodes as may be without the driver at once."""
    upgrade = Upgrade(Case(20, "2", part=6, kernels=2))
    assert upgrade.run()["upgraded"] == 6
    assert len(upgrade.cluster.proven) == 8


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        pytest.param("time ratio", [1.0, 1.1], "at most 1.1: met", id="a time within the limit"),
        pytest.param("time ratio", [1.0, 1.2], "at most 1.1: **not met**", id="a time beyond it"),
        pytest.param("cpu", [10, 13], "largest at most 1.3 times the smallest: met, 1.30 times", id="constant"),
        pytest.param("writes", [4, 8], "largest at most 1.3 times the smallest: **not met**, 2.00 times", id="growing"),
        pytest.param("reconciles", [1, 9], "", id="a figure that nobody judges"),
    ],
)
def test_figures_are_judged(key: str, values: list[float], said: str) -> None:
    """By the issue's words."""
    assert verdict(ROW_OF[key], values) == said


def test_each_fleet_has_a_column() -> None:
    """And each figure a line."""
    lines = table({500: FIGURES, 5000: FIGURES}).splitlines()
    assert lines[0] == "| nodes | 500 | 5,000 | target |"
    assert len(lines) == 2 + len(ROWS)


def test_some_waves_of_a_fleet_are_measured() -> None:
    """Or the nodes that are asked for, if they are more; a fleet that has hardly more is measured whole."""
    assert part_of(5000, "10", 300) == 300
    assert part_of(5000, "5%", 300) == 1000
    assert part_of(500, "10", 300) == 0
    assert part_of(5000, "10", 0) == 0
