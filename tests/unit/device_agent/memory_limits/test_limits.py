"""How much of a card a pod may use."""

import pytest

from device_agent.allocations.given import Allocation
from device_agent.memory_limits.limits import Part, is_unknown, limit_of, part_of
from device_resources.memory_limits import DefaultLimit, MemorySettings
from tests.unit.device_agent.memory_limits.examples import GIB, SHARED, WHOLE

SHARE = MemorySettings()
NONE = MemorySettings(default=DefaultLimit.NONE)
TEN = MemorySettings(limits={SHARED: 10 * GIB, WHOLE: 10 * GIB})
TEN_ALONE = MemorySettings(limits={SHARED: 10 * GIB}, default=DefaultLimit.NONE)
L4 = "nvidia.com/l4.shared"


@pytest.mark.parametrize(
    ("parts", "total", "settings", "limit"),
    [
        pytest.param([Part(SHARED, 4)], 40 * GIB, SHARE, 10 * GIB, id="a share"),
        pytest.param([Part(SHARED, 4)] * 2, 40 * GIB, SHARE, 20 * GIB, id="two shares"),
        pytest.param([Part(SHARED, 4)] * 4, 40 * GIB, SHARE, 40 * GIB, id="all shares are all of the card"),
        pytest.param([Part(SHARED, 3)] * 3, 40 * GIB, SHARE, 40 * GIB + 2, id="and no byte less"),
        pytest.param([Part(SHARED, 4), Part(SHARED, 2)], 40 * GIB, SHARE, 30 * GIB, id="of two profiles"),
        pytest.param([Part(SHARED, 4)], 40 * GIB, TEN, 10 * GIB, id="as it is written"),
        pytest.param([Part(SHARED, 4)] * 2, 40 * GIB, TEN, 20 * GIB, id="twice what is written"),
        pytest.param([Part(SHARED, 0)], None, TEN, 10 * GIB, id="written, where nothing else is known"),
        pytest.param([Part(SHARED, 4), Part(L4, 4)], 40 * GIB, TEN, 20 * GIB, id="one as written, one by its share"),
        pytest.param([Part(SHARED, 4), Part(L4, 4)], 40 * GIB, TEN_ALONE, None, id="one of two without a limit"),
        pytest.param([Part(SHARED, 4)], 40 * GIB, NONE, None, id="no default"),
        pytest.param([Part(WHOLE, 1)], 40 * GIB, SHARE, None, id="a whole card"),
        pytest.param([Part(WHOLE, 1)], 40 * GIB, TEN, None, id="a whole card, whatever is written"),
        pytest.param([Part(SHARED, 0)], 40 * GIB, SHARE, None, id="given by an agent that did not say how"),
        pytest.param([Part(SHARED, 4), Part(SHARED, 0)], 40 * GIB, SHARE, None, id="one of two was"),
        pytest.param([Part(SHARED, 4)], None, SHARE, None, id="a card of unknown size"),
        pytest.param([Part(SHARED, 4)], 0, SHARE, None, id="a card without memory"),
        pytest.param([], 40 * GIB, SHARE, None, id="no device"),
    ],
)
def test_the_limit_of_a_pod(parts: list[Part], total: int | None, settings: MemorySettings, limit: int | None) -> None:
    """Each device counts for itself; what is not known limits nobody."""
    assert limit_of(parts, total, settings) == limit


@pytest.mark.parametrize(
    ("parts", "total", "settings", "unknown"),
    [
        pytest.param([Part(SHARED, 4)], 40 * GIB, SHARE, False, id="a share"),
        pytest.param([Part(SHARED, 0)], 40 * GIB, SHARE, True, id="of which nothing is remembered"),
        pytest.param([Part(SHARED, 4), Part(SHARED, 0)], 40 * GIB, SHARE, True, id="one of two"),
        pytest.param([Part(SHARED, 4)], None, SHARE, True, id="a card of unknown size"),
        pytest.param([Part(SHARED, 0)], None, TEN, False, id="where a limit is written"),
        pytest.param([Part(SHARED, 0)], None, NONE, False, id="where none is wanted"),
        pytest.param([Part(SHARED, 0), Part(WHOLE, 1)], 40 * GIB, SHARE, False, id="beside the whole card"),
        pytest.param([Part(L4, 0), Part(SHARED, 4)], 40 * GIB, TEN_ALONE, False, id="beside one without a limit"),
        pytest.param([Part(WHOLE, 1)], None, SHARE, False, id="a whole card"),
    ],
)
def test_whether_a_limit_is_not_known(
    parts: list[Part], total: int | None, settings: MemorySettings, unknown: bool
) -> None:
    """A pod that has none because an admin wants none is another thing."""
    assert is_unknown(parts, total, settings) is unknown


@pytest.mark.parametrize(
    ("device", "shares", "replicas"),
    [
        pytest.param("GPU-0::3", 4, 4, id="a share"),
        pytest.param("GPU-0::3", 0, 0, id="of an earlier agent"),
        pytest.param("GPU-0::3", None, 0, id="of which nothing is remembered"),
        pytest.param("GPU-0", 1, 1, id="whole"),
        pytest.param("GPU-0", None, 1, id="whole, by its name"),
        pytest.param("GPU-0", 0, 1, id="whole, of an earlier agent"),
    ],
)
def test_the_shares_are_those_of_the_allocation(device: str, shares: int | None, replicas: int) -> None:
    """A profile that came later changes nothing; a whole card is known by its id alone."""
    allocation = None if shares is None else Allocation(identity=("/dev/nvidia0",), shares=shares)
    assert part_of(SHARED, device, allocation) == Part(SHARED, replicas)
