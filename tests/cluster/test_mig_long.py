"""A real kubelet, a real API server and MIG layouts: what the Node's label asks for is made, offered, and says so.

NVML is a test's, which keeps the placements of an A100 with 40 GB. The tests build on each other, in their order.
"""

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.testbed import Testbed
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS
from tests.support.real_parts.mig_cards import MIXED, SINGLE, MigCards, mig_cards
from tests.support.real_parts.nvidia_node import CARDS

pytestmark = pytest.mark.long

TWOS, SEVENS = "2x2g.10gb-3x1g.5gb", "7x1g.5gb"
PROFILES = {TWOS: ["1g.5gb"] * 3 + ["2g.10gb"] * 2, SEVENS: ["1g.5gb"] * 7}


@pytest.fixture(scope="module")
def cards(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigCards]:
    """Have four whole cards offered."""
    with mig_cards(ground, tmp_path_factory.mktemp("m")) as made:
        made.node.start("agent")
        made.node.start("nvml")
        made.offers(whole=4)
        yield made


def test_a_label_makes_instances_of_two_kinds(cards: MigCards) -> None:
    """Eight and twelve of four cards, each kind as a resource of its own."""
    took = cards.makes(TWOS)
    cards.offers(two=8, one=12)
    assert cards.profiles() == [PROFILES[TWOS]] * len(CARDS)
    print(f"\n{TWOS}: 8 and 12 allocatable; success after {took:.1f} s")


def test_what_does_not_fit_is_refused_and_nothing_destroyed(cards: MigCards) -> None:
    """The message names card and profile; what was offered is offered still."""
    before = cards.changes()
    cards.ask("too-much")
    message = cards.reaches("failed", "card 0", "1g.5gb")
    assert cards.changes() == before
    cards.offers(two=8, one=12)
    print(f"\nrefused: {message}")


def test_a_change_waits_for_the_pod_that_has_an_instance(cards: MigCards) -> None:
    """It has the nodes that open its instance, and no others. The annotation names it, and nothing is destroyed.

    When it is deleted, all cards become as asked.
    """
    cards.makes(TWOS)
    cards.run_pods(cards.two, "holder")
    ((card, profile),) = cards.instances_of("holder")
    assert profile == "2g.10gb"
    life, before = cards.life("holder"), cards.changes()
    cards.ask(SEVENS)
    message = cards.reaches("pending", f"{NAMESPACE}/holder")
    assert (cards.changes(), cards.life("holder")) == (before, life)
    began = time.monotonic()
    cards.delete("holder")
    cards.reaches("success")
    took = time.monotonic() - began
    cards.offers(one=28)
    assert "lock" not in cards.said_of()[2]
    print(f"\npending, card {card}: {message}; 28 mig-1g.5gb, success {took:.1f} s after the deletion")


def test_with_the_strategy_single_all_instances_are_gpus(cards: MigCards) -> None:
    """Twenty-eight; the layout stays as it is."""
    cards.makes(SEVENS)
    before = cards.changes()
    cards.use(SINGLE)
    cards.offers(whole=28)
    cards.use(MIXED)
    cards.offers(one=28)
    assert cards.changes() == before


def test_three_kinds_fit_on_each_card(cards: MigCards) -> None:
    """Each is a resource of its own; a pod of each kind has the nodes that open its instance, and no others."""
    took = cards.makes("balanced")
    cards.offers(one=8, two=4, three=4)
    kinds = {"1g.5gb": cards.one, "2g.10gb": cards.two, "3g.20gb": cards.three}
    names = {profile: f"kind-{profile[:2]}" for profile in kinds}
    for profile, place in kinds.items():
        cards.run_pods(place, names[profile])
    found = {profile: cards.instances_of(name) for profile, name in names.items()}
    assert {profile: [kind for _, kind in instances] for profile, instances in found.items()} == {
        profile: [profile] for profile in kinds
    }
    cards.delete(*names.values())
    print(f"\nbalanced: 8, 4 and 4 after {took:.1f} s; pods of each kind have {found}")


def die_of_change(cards: MigCards, point: int) -> None:
    """Have the process killed that changes a card."""
    before = cards.changing_pid()
    cards.node.machine.die_at(point)
    cards.ask(next(key for key in PROFILES if key != cards.said_of()[0]))
    cards.wait_for_point(point)
    cards.place.cluster.wait(
        "it is another one", lambda: cards.changing_pid() not in ("", before) or None, timeout=SECONDS
    )


def killed(name: str) -> Callable[[MigCards, int], None]:
    """Make what kills the agent or the container ``nvml`` in the middle of a change."""

    def kill(cards: MigCards, point: int) -> None:
        cards.ask(next(key for key in PROFILES if key != cards.said_of()[0]))
        cards.wait_for_point(point)
        cards.node.end(name, signal.SIGKILL)
        cards.node.start(name)

    return kill


@pytest.mark.parametrize("passed", [1, 10, 50])
@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(die_of_change, id="who changes the card"),
        pytest.param(killed("agent"), id="agent"),
        pytest.param(killed("nvml"), id="nvml"),
    ],
)
def test_a_change_that_is_killed_is_ended(cards: MigCards, kill: Callable[[MigCards, int], None], passed: int) -> None:
    """By SIGKILL after so many of its points: all cards become as asked, and the lock is given back."""
    began = time.monotonic()
    kill(cards, cards.node.machine.mig.points() + passed)
    cards.reaches("success")
    key, _, record = cards.said_of()
    assert cards.profiles() == [PROFILES[key]] * len(CARDS)
    assert (record["before"], record["applied"], "lock" in record) == (None, key, False)
    cards.offers(**({"one": 28} if key == SEVENS else {"two": 8, "one": 12}))
    print(f"\nkilled after {passed} points: {key}, success after {time.monotonic() - began:.1f} s")


def test_a_change_of_the_mode_waits_for_the_pod_that_has_the_whole_card(cards: MigCards) -> None:
    """The card is one before the change and none after it: its pod is named, and lives until somebody deletes it."""
    cards.makes("all-disabled")
    cards.offers(whole=4)
    cards.run_pods(cards.place, "whole-card", restart="Always")
    ((card,),) = cards.cards("whole-card")
    life, before = cards.life("whole-card"), cards.changes()
    cards.ask(SEVENS)
    message = cards.reaches("pending", f"card {card}", f"{NAMESPACE}/whole-card")
    assert (cards.changes(), cards.life("whole-card"), cards.leftovers()) == (before, life, {})
    cards.offers(whole=4)
    cards.delete("whole-card")
    cards.reaches("success")
    cards.offers(one=28)
    assert cards.profiles() == [PROFILES[SEVENS]] * len(CARDS)
    print(f"\npending: {message}")


def test_a_pod_of_another_card_lives_through_the_change(cards: MigCards) -> None:
    """One card of four is partitioned; the pod's card is not, and the container is the same one."""
    cards.makes("all-disabled")
    cards.offers(whole=4)
    cards.run_pods(cards.place, "neighbour")
    (mine,) = cards.cards("neighbour")
    life = cards.life("neighbour")
    other = min({*CARDS} - mine)
    entry = {"devices": [other], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    cards.write(**{"one-card": [entry]})
    before = len(cards.changes())
    took = cards.makes("one-card")
    assert all(cards.node.machine.uuid(other) in line for line in cards.changes()[before:])
    cards.offers(whole=3, one=7)
    assert [len(cards.layout(card)) for card in CARDS] == [7 if card == other else 0 for card in CARDS]
    assert cards.life("neighbour") == life
    print(f"\ncard {other} changed in {took:.1f} s; the pod on card {mine} runs in the same container")
