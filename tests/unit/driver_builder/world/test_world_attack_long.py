"""The first half of the histories that only ``make test-long`` tries."""

from collections.abc import Iterator

import pytest

from tests.support.driver_builder.model_world import World
from tests.unit.driver_builder.world.test_world_attack import FEW, SEEDS, play, seeds


@pytest.fixture(autouse=True, scope="module")
def how_the_cluster_is_read() -> Iterator[None]:
    """Stale caches need watches: the cluster is not listed as well."""
    World.is_followed = True
    yield
    World.is_followed = False


@pytest.mark.long
@pytest.mark.parametrize("seed", [*seeds(range(FEW, SEEDS // 2))])
def test_a_hostile_history(seed: int) -> None:
    """All invariants hold, and the last one says that all ends in order."""
    play(seed)
