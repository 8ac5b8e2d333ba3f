"""A soak follows from its seed, and leaves no kind of fault out."""

from __future__ import annotations

from dataclasses import replace

from tests.support.soak.schedule import DECKS, FAULTS, RESTARTS, Act, Link, Size, burst

SIZE = Size(exchanges=20, worlds=3, troubles=2, gap=2.0)


def test_a_burst_is_the_same_for_the_same_seed() -> None:
    """And another one for another seed, or number."""
    assert burst(7, 3, SIZE) == burst(7, 3, SIZE)
    assert len({str(burst(seed, number, SIZE)) for seed in (7, 8) for number in (3, 4)}) == 4


def test_every_fault_comes_before_long() -> None:
    """Of each link, and beside exchanges."""
    bursts = [burst(7, number, SIZE) for number in range(7)]
    for link in Link:
        dealt = {(fault.fault, fault.on) for item in bursts for fault in item.faults[link]}
        assert dealt == set(DECKS[link])
    assert {step.act for item in bursts for step in item.steps} == set(Act)


def test_a_burst_is_as_large_as_it_is_to_be() -> None:
    """Exchanges, changes of the world and troubles; there is always something to build."""
    for number in range(20):
        made = burst(7, number, SIZE)
        acts = [step.act for step in made.steps]
        assert sum(len(faults) for faults in made.faults.values()) == SIZE.exchanges
        assert Act.EDIT in acts
        assert Act.COSMETIC not in acts[1:], "what no node has is edited first"
        assert Act.DELETE not in acts[:-1], "what is deleted is not edited"
        assert sum(act in FAULTS for act in acts) == SIZE.troubles
        assert len(acts) == SIZE.troubles + SIZE.worlds


def test_a_driver_is_deleted_once_in_a_burst() -> None:
    """Also where two rows of acts meet in a burst, and both have the deletion there; what comes before it stays."""
    size = replace(SIZE, worlds=5)
    drawn = 0
    for seed in range(200):
        acts = [step.act for step in burst(seed, 2, size).steps]
        assert acts.count(Act.DELETE) <= 1
        drawn += len(acts) < size.troubles + size.worlds
    assert drawn, "no burst of these has it twice"


def test_restarts_may_be_left_out() -> None:
    """For as long as one process is to live."""
    acts = {step.act for number in range(20) for step in burst(7, number, SIZE, restarts=False).steps}
    assert acts == set(Act) - RESTARTS
