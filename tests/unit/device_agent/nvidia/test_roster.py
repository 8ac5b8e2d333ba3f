"""Which GPUs are known: one that cannot be read keeps the UUID that it had."""

import pytest

from device_agent.gpu_state.state import ABSENT, FAILED, CardState, State
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
    assert after_state(EMPTY, state(card(0), lost(1))) == (
        Roster(boot="boot-1", load="100", since=100.0, cards=(card(0),)),
        1,
    )
    roster, unnamed = after_state(KNOWN, state(split(0, "1g.5gb"), card(1), card(2), lost(3)))
    assert (len(roster.cards), unnamed) == (3, 1)


def test_a_gpu_that_is_not_listed_stays_until_the_next_boot() -> None:
    """Unhealthy, however long that is."""
    said = state(split(0, "1g.5gb"), card(2, index=1))
    for at in (110.0, 1e6):
        roster, _ = after_state(KNOWN, said._replace(read_at=at))
        assert why(roster) == {"GPU-0": "", "GPU-2": "", "GPU-1": "NVML does not list it any more"}


@pytest.mark.parametrize("fields", [REBOOTED, RELOADED], ids=["boot", "reload"])
def test_a_gpu_that_is_not_listed_after_a_boot_has_a_while_to_appear(fields: dict[str, object]) -> None:
    """Unhealthy, and without a minor number, which may be another GPU's; then it is no more."""
    said = state(split(0, "1g.5gb"), card(2, index=1, minor=1))._replace(**fields)  # type: ignore[arg-type] # names of its fields
    roster = KNOWN
    for at in (20.0, 30.0, 139.0):
        roster, _ = after_state(roster, said._replace(read_at=at))
        assert why(roster) == {"GPU-0": "", "GPU-2": "", "GPU-1": "NVML does not list it any more"}
        assert [one.minor for one in roster.cards] == [0, 1, None]
    roster, _ = after_state(roster, said._replace(read_at=140.0))
    assert list(why(roster)) == ["GPU-0", "GPU-2"]


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        pytest.param(card(1), "", id="is well"),
        pytest.param(lost(1), "GPU is lost", id="cannot say its UUID"),
    ],
)
def test_a_gpu_that_is_late_after_a_boot_has_its_name(late: CardState, expected: str) -> None:
    """Also if it is lost by then."""
    roster, _ = after_state(KNOWN, state(card(0), card(2), at=20.0, **REBOOTED))
    roster, unnamed = after_state(roster, state(card(0), late, card(2), at=30.0, **REBOOTED))
    assert (why(roster), unnamed) == ({"GPU-0": "", "GPU-1": expected, "GPU-2": ""}, 0)


def test_a_gpu_that_was_replaced_is_no_more_at_once() -> None:
    """As many are listed as were known: none is late. A machine of a cloud may have others at each boot."""
    roster, _ = after_state(KNOWN, state(card(0), card(2), card(7, index=2), at=20.0, **REBOOTED))
    assert list(why(roster)) == ["GPU-0", "GPU-2", "GPU-7"]
    roster, _ = after_state(KNOWN, state(card(0), card(2), at=20.0, **REBOOTED))
    roster, _ = after_state(roster, state(card(0), card(2), card(7), at=30.0, **REBOOTED))
    assert list(why(roster)) == ["GPU-0", "GPU-2", "GPU-7"]


def test_a_gpu_that_answers_again_is_as_it_says() -> None:
    """Nothing of before is kept."""
    away, _ = after_state(KNOWN, state(lost(0), card(1), card(2)))
    back, _ = after_state(away, state(card(0), card(1), card(2)))
    assert back.cards == tuple(card(number) for number in range(3))
    assert [one.uuid for one in back.cards] == [uuid(number) for number in range(3)]
