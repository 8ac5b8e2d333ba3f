"""The histories with device agents that only ``make test-long`` tries."""

from collections.abc import Iterator

import pytest

from tests.support.driver_builder.model_world import World
from tests.unit.driver_builder.world.test_world_agent_drain import FEW, SEEDS, play

_UNSEEN = (
    "a controller whose watches have stopped does not know that it has deleted the pod that brought an image: it counts"
    " on the image, which is on the node still, and the model has none without its pod"
)
LEFT = dict.fromkeys((140,), _UNSEEN)
"""Seeds whose history shows a fault that is left, with why it is left; it is one of waves."""


@pytest.fixture(autouse=True, scope="module")
def how_the_cluster_is_read() -> Iterator[None]:
    """Stale caches need watches: the cluster is not listed as well."""
    World.is_followed = True
    yield
    World.is_followed = False


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.xfail(strict=True, reason=LEFT[seed])] if seed in LEFT else [])
        for seed in range(FEW, SEEDS)
    ],
)
def test_a_hostile_history_with_agents(seed: int) -> None:
    """All invariants hold, whoever evicts."""
    play(seed)
