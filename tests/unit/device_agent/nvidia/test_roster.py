"""Which GPUs are known: one that cannot be read keeps the UUID that it had."""

import pytest

from device_agent.gpu_state.state import ABSENT, FAILED, State
from device_agent.sources.nvidia.roster import EMPTY, Roster, after_state
from tests.unit.device_agent.nvidia.states import card, lost, split, state, uuid

KNOWN, _ = after_state(EMPTY, state(split(0, "1g.5gb"), card(1), card(2)))
REBOOTED = {"boot": "boot-2"}
RELOADED = {"load": "101"}


def why(roster: Roster) -> dict[str, str]:
    """Return why each GPU that is known cannot be read."""
    return {card.uuid: card.why for card in roster.cards}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(state(status=FAILED, reason="NVML hangs"), id="failed"),
        pytest.param(state(status=ABSENT, reason="no driver", load=""), id="absent"),
        pytest.param(state(at=0.0, load="101"), id="not read since the load"),
    ],
)
def test_gpus_stay_while_nothing_is_read(said: State) -> None:
    """The kubelet would drop the resource."""
    assert after_state(KNOWN, said) == (KNOWN, 0)


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(lost(1), id="by its index"),
        pytest.param(lost(7, pci="0000:3c:00.0"), id="by its address"),
        pytest.param(lost(7, uuid="GPU-1"), id="by its UUID"),
    ],
)
@pytest.mark.parametrize("fields", [{}, REBOOTED, RELOADED], ids=["now", "after a boot", "after a reload"])
def test_a_lost_gpu_keeps_its_uuid(gone: object, fields: dict[str, object]) -> None:
    """Also for an agent that starts later: eight are known, and seven are given."""
    roster, unnamed = after_state(KNOWN, state(split(0, "1g.5gb"), gone, card(2), **fields))  # type: ignore[arg-type]
    assert sorted(why(roster).items()) == [("GPU-0", ""), ("GPU-1", "GPU is lost"), ("GPU-2", "")]
    assert unnamed == 0


def test_a_lost_gpu_keeps_its_instances() -> None:
    """And its minor number, as long as the driver is the same."""
    roster, _ = after_state(KNOWN, state(lost(0), card(1), card(2)))
    assert [one.uuid for one in roster.cards[0].instances] == ["MIG-0-1"]
    assert roster.cards[0].minor == 0


@pytest.mark.parametrize("fields", [REBOOTED, RELOADED], ids=["boot", "reload"])
def test_the_minor_number_of_a_lost_gpu_is_not_believed_any_more(fields: dict[str, object]) -> None:
    """Another load of the driver gives it to another GPU."""
    said = state(lost(0), card(1, minor=0), card(2, minor=1))._replace(**fields)  # type: ignore[arg-type] # names of its fields
    roster, _ = after_state(KNOWN, said)
    assert [one.minor for one in roster.cards] == [None, 0, 1]


def test_a_gpu_that_nobody_knows_is_counted_only() -> None:
    """It has no id under which it could be offered."""
    assert after_state(EMPTY, state(card(0), lost(1))) == (Roster(boot="boot-1", load="100", cards=(card(0),)), 1)
    roster, unnamed = after_state(KNOWN, state(split(0, "1g.5gb"), card(1), card(2), lost(3)))
    assert (len(roster.cards), unnamed) == (3, 1)


def test_a_gpu_that_is_not_listed_stays_until_the_next_boot() -> None:
    """Unhealthy; after it, the GPU is no more."""
    said = state(split(0, "1g.5gb"), card(2, index=1))
    roster, _ = after_state(KNOWN, said)
    assert why(roster) == {"GPU-0": "", "GPU-2": "", "GPU-1": "NVML does not list it any more"}
    for fields in (REBOOTED, RELOADED):
        assert list(why(after_state(roster, said._replace(**fields))[0])) == ["GPU-0", "GPU-2"]  # type: ignore[arg-type]


def test_a_gpu_that_answers_again_is_as_it_says() -> None:
    """Nothing of before is kept."""
    away, _ = after_state(KNOWN, state(lost(0), card(1), card(2)))
    back, _ = after_state(away, state(card(0), card(1), card(2)))
    assert back.cards == tuple(card(number) for number in range(3))
    assert [one.uuid for one in back.cards] == [uuid(number) for number in range(3)]
