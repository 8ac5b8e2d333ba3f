"""A real kubelet and profiles of GPUs: what is offered, given and kept while profiles change.

Beside the four cards that the tests share there is a fifth one, whose holder waits from the first test to the last: the
kubelet forgets a resource five minutes after its plugin has ended.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from device_agent.allocations.recent import SECONDS as RECENT_SECONDS
from device_agent.boot import seconds_since_boot
from testbed.testbed import Testbed
from tests.support.real_parts import host_containers, reference_plugin
from tests.support.real_parts.device_agent import SECONDS
from tests.support.real_parts.nvidia_node import CARDS
from tests.support.real_parts.shared_cards import ALL_WHOLE, WHOLE, SharedCards, profile, shared_cards

pytestmark = pytest.mark.long

SHARES = profile(4)
RENAMED = profile(4, renamed=True)
PACKED = profile(4, renamed=True, policy="packed")
EIGHTHS = profile(8, renamed=True)
ONE_EACH = profile(4, renamed=True, one_each=True)
SOME = profile(4, renamed=True, devices=[0, 1])

PATIENT = "patient"
FORGOTTEN_SECONDS = 360.0
"""A minute more than the kubelet remembers a resource whose plugin has ended."""
MOST_MIB = 40.0


@pytest.fixture(scope="module")
def cards(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCards]:
    """Have four free cards, and a pod that holds the fifth one under a name that nothing else is offered under."""
    with shared_cards(ground, tmp_path_factory.mktemp("n")) as made:
        made.write(ALL_WHOLE)
        made.node.start("agent")
        made.node.start("nvml")
        made.shows(gpu=(4, 4), other=(1, 1))
        made.run_pods(made.other, PATIENT, restart="Always")
        assert made.has_other(PATIENT)
        made.write(WHOLE)
        made.shows(gpu=(4, 4), other=(1, 1), other_shared=(2, 0))
        yield made


@pytest.fixture(scope="module")
def changed_at(cards: SharedCards) -> float:
    """Return when the last other user of the fifth card's name was gone."""
    assert cards
    return time.monotonic()


@pytest.fixture(autouse=True)
def _one_way(cards: SharedCards, changed_at: float) -> Iterator[None]:
    """Leave the patient alone, and no card in two ways."""
    assert changed_at
    yield
    cards.check_ways()


def starts_whole(cards: SharedCards) -> None:
    """Have four whole cards that nobody has."""
    cards.starts_with(WHOLE, but=[PATIENT])
    cards.shows(gpu=(4, 4), shared=(0, 0))


def twelve(cards: SharedCards) -> list[str]:
    """Name twelve pods."""
    assert cards
    return [f"share-{number}" for number in range(12)]


def test_a_held_card_leaves_twelve_shares_of_another_name(cards: SharedCards) -> None:
    """Twelve pods start at once, one more when the holder has ended: on its card."""
    starts_whole(cards)
    cards.run_pods(cards.gpu, "holder")
    (held,) = cards.cards("holder")
    cards.write(RENAMED)
    took = cards.shows(gpu=(1, 1), shared=(16, 12))
    pods = twelve(cards)
    cards.run_pods(cards.shared, *pods)
    cards.start_pods(cards.shared, "late")
    cards.is_refused("late")
    given = cards.cards(*pods)
    assert sorted(card for its in given for card in its) == sorted([*({*CARDS} - held)] * 4)
    began = time.monotonic()
    cards.delete("holder")
    cards.shows(gpu=(0, 0), shared=(16, 16))
    freed = time.monotonic() - began
    cards.runs("late")
    assert cards.cards("late") == [held]
    print(f"\nnew name: 12 of 16 after {took:.1f} s, 12 pods run, the 13th waits; 16 {freed:.1f} s after the deletion")


def test_a_held_card_leaves_twelve_shares_of_its_own_name(cards: SharedCards) -> None:
    """The scheduler subtracts the holder from thirteen; back again, four held shares leave three cards."""
    starts_whole(cards)
    cards.run_pods(cards.gpu, "holder")
    (held,) = cards.cards("holder")
    cards.write(SHARES)
    took = cards.shows(gpu=(17, 13), shared=(0, 0))
    pods = twelve(cards)
    cards.run_pods(cards.gpu, *pods)
    cards.start_pods(cards.gpu, "late")
    cards.is_refused("late")
    by_card = {card: [name for name in pods if cards.cards(name) == [{card}]] for card in {*CARDS} - held}
    assert [len(names) for names in by_card.values()] == [4, 4, 4]
    print(f"\nsame name: 13 of 17 after {took:.1f} s, 12 more pods run, the 13th waits")

    kept, *others = by_card
    cards.delete("late", "holder", *(name for card in others for name in by_card[card]))
    cards.shows(gpu=(16, 16))
    cards.write(WHOLE)
    took = cards.shows(gpu=(8, 7))
    wholes = [f"whole-{number}" for number in range(3)]
    cards.run_pods(cards.gpu, *wholes)
    cards.start_pods(cards.gpu, "late")
    cards.is_refused("late")
    assert {card for its in cards.cards(*wholes) for card in its} == {*CARDS} - {kept}
    print(f"back: 7 of 8 after {took:.1f} s, 3 pods run, the 4th waits")


def test_some_cards_are_shared_and_some_are_whole(cards: SharedCards) -> None:
    """By their indexes."""
    starts_whole(cards)
    cards.write(SOME)
    cards.shows(gpu=(2, 2), shared=(8, 8))
    cards.run_pods(cards.gpu, "both", count=2)
    cards.run_pods(cards.shared, "eight", count=8)
    assert cards.cards("both", "eight") == [{2, 3}, {0, 1}]


def test_a_request_of_two_shares_is_refused(cards: SharedCards) -> None:
    """The kubelet fails the pod at admission, with NVIDIA's words; one share is given."""
    starts_whole(cards)
    cards.write(ONE_EACH)
    cards.shows(gpu=(0, 0), shared=(16, 16))
    cards.start_pods(cards.shared, "two", count=2)
    status = cards.place.cluster.wait(
        "the pod has failed", lambda: cards.failed("two"), timeout=SECONDS, seen=lambda: cards.place.why("two")
    )
    print(f"\ntwo shares: {status['reason']}: {status['message']}")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "request for 'nvidia.com/gpu.shared: 2' too large: maximum request size" in status["message"]
    cards.run_pods(cards.shared, "one")


def test_an_error_takes_all_shares_of_a_card_away(cards: SharedCards) -> None:
    """Its pod lives on; they are back when the driver asks for nothing any more."""
    starts_whole(cards)
    cards.write(RENAMED)
    cards.shows(shared=(16, 16))
    cards.run_pods(cards.shared, "user")
    ((card,),) = cards.cards("user")
    cards.node.machine.set(card, "recovery", 1)
    cards.node.machine.xid(card, 79)
    took = cards.shows(shared=(16, 12))
    cards.runs("user")
    cards.node.machine.set(card, "recovery", 0)
    back = cards.shows(shared=(16, 16))
    print(f"\nXid 79 of a card with 4 shares: 12 of 16 after {took:.1f} s, back {back:.1f} s after action 0")


def test_nobody_shares_a_card_of_an_init_container(cards: SharedCards) -> None:
    """Not even when Allocate is long ago, though podresources does not name it."""
    starts_whole(cards)
    container = cards.start_with_init("initialises")
    given = cards.allocated()
    cards.write(RENAMED)
    cards.shows(gpu=(1, 1), shared=(16, 12))
    cards.place.cluster.wait(
        "Allocate is long ago", lambda: seconds_since_boot() > given + RECENT_SECONDS + 5 or None, timeout=SECONDS
    )
    # Another round of looks: what is free follows, what the init container has does not.
    cards.write(EIGHTHS)
    cards.shows(gpu=(1, 1), shared=(32, 24))
    cards.run_pods(cards.shared, "rest", count=24)
    (free,) = cards.cards("rest")
    assert len(free) == 3
    host_containers.kill(container, signal.SIGTERM)
    cards.runs("initialises")
    cards.delete("initialises")
    cards.shows(gpu=(0, 0), shared=(32, 32))


def test_shares_of_four_and_of_eight_are_told_apart_after_a_kill(cards: SharedCards) -> None:
    """The agent is killed right after the change, and once more when it has been made.

    What a pod had a moment ago that has ended is nobody's then, though it was given within the last minute.
    """
    starts_whole(cards)
    cards.run_pods(cards.gpu, "before", count=4)
    cards.delete("before")
    cards.run_pods(cards.gpu, "holder")
    cards.write(PACKED)
    cards.shows(gpu=(1, 1), shared=(16, 12))
    cards.run_pods(cards.shared, *(fours := [f"four-{number}" for number in range(4)]))
    cards.run_pods(cards.shared, "others", count=8)
    holder, four, *more = cards.cards("holder", *fours)
    assert (more, cards.cards("others")) == ([four] * 3, [{*CARDS} - holder - four])
    cards.start_pods(cards.gpu, "whole")
    cards.start_pods(cards.shared, "late")
    cards.is_refused("whole")
    cards.is_refused("late")
    cards.write(EIGHTHS)
    for _ in range(2):
        cards.node.end("agent", signal.SIGKILL)
        cards.node.start("agent")
        # The ids of four that pods have: those of eight wait, also those with the same text.
        cards.shows(gpu=(1, 1), shared=(32, 12))
    cards.is_refused("whole")
    cards.is_refused("late")
    # A pod that waits may get what one of the four had, before anybody knows that it has ended.
    cards.delete("late", "whole")
    cards.delete(*fours)
    cards.shows(gpu=(1, 1), shared=(32, 16))
    cards.run_pods(cards.shared, "eighths", count=8)
    assert cards.cards("eighths") == [four]
    cards.delete("holder", "others", "eighths")
    cards.shows(gpu=(0, 0), shared=(32, 32))


def test_changes_wait_while_it_is_not_known_who_has_devices(cards: SharedCards) -> None:
    """Neither the kubelet's podresources nor its checkpoint alone is enough; what is offered stays."""
    starts_whole(cards)
    cards.run_pods(cards.gpu, "holder")
    said = cards.said()
    cards.hide_pod_resources()
    cards.write(RENAMED)
    cards.logs(said, "it is not known which devices are in use: the kubelet cannot be asked on", "profiles wait")
    cards.run_pods(cards.gpu, "more")
    cards.shows(gpu=(4, 4), shared=(0, 0))
    cards.show_pod_resources()
    cards.shows(gpu=(2, 2), shared=(16, 8))

    said = cards.said()
    with cards.without_checkpoint():
        cards.write(WHOLE)
        cards.logs(said, f"cannot read {cards.checkpoint}: it is not a regular file; changes of profiles wait")
        cards.shows(gpu=(2, 2), shared=(16, 8))
    cards.shows(gpu=(4, 4), shared=(0, 0))


def test_what_the_pod_takes(cards: SharedCards) -> None:
    """Both programs of the pod, with a profile at work."""
    starts_whole(cards)
    cards.run_pods(cards.gpu, "holder")
    cards.write(RENAMED)
    cards.shows(gpu=(1, 1), shared=(16, 12))
    weights = cards.weights()
    total = sum(weights.values())
    print(f"\nPSS: {', '.join(f'{name} {mib:.1f} MiB' for name, mib in weights.items())}; together {total:.1f} MiB")
    assert total <= MOST_MIB


def test_a_container_starts_again_six_minutes_after_the_change(cards: SharedCards, changed_at: float) -> None:
    """It has its card's nodes: its resource is registered as long as it has something of it."""
    cards.starts_with(WHOLE, but=[PATIENT])
    cards.place.cluster.wait(
        "six minutes are over", lambda: time.monotonic() > changed_at + FORGOTTEN_SECONDS or None, timeout=SECONDS
    )
    before = reference_plugin.container_of(cards.place.pod(PATIENT))
    host_containers.kill(before)
    cards.place.cluster.wait(
        "another container", lambda: reference_plugin.container_of(cards.place.pod(PATIENT)) != before or None,
        timeout=SECONDS, seen=lambda: cards.place.why(PATIENT),
    )  # fmt: skip
    cards.runs(PATIENT)
    assert cards.has_other(PATIENT)
    cards.shows(gpu=(4, 4), other=(1, 1), other_shared=(2, 0))
    print(f"\nstarted again {time.monotonic() - changed_at:.0f} s after the change")
    cards.delete(PATIENT)
    cards.shows(gpu=(4, 4), other=(0, 0), other_shared=(2, 2))


def test_nobody_shares_a_card_that_was_just_given(cards: SharedCards) -> None:
    """The profile changes as soon as the agent has given it, before its pod runs, and nobody has asked for a while."""
    starts_whole(cards)
    before = cards.allocated()
    cards.start_pods(cards.gpu, "quick")
    cards.place.cluster.wait("a card is given", lambda: cards.allocated() > before or None, timeout=SECONDS, every=0.02)
    cards.write(RENAMED)
    cards.shows(gpu=(1, 1), shared=(16, 12))
    cards.run_pods(cards.shared, "rest", count=12)
    (held,), (free,) = cards.cards("quick"), cards.cards("rest")
    assert (len(held), free) == (1, {*CARDS} - held)
