"""A real kubelet, scheduler and driver-builder: pods leave the one card of four whose MIG layout changes.

driver-builder runs with its own account and the rights to drain; the agent asks it by the Node. Pods of the other three
cards see nothing of it. The tests build on each other, in their order.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    DRAINING_ANNOTATION,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
    UPGRADING_TAINT,
)
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.real_parts.agent_drains import Evictable, draining_controller
from tests.support.real_parts.agent_of_test import DRAIN_SECONDS
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Json
from tests.support.real_parts.history import History
from tests.support.real_parts.mig_cards import MIXED, PLUGIN, MigCards, mig_cards
from tests.support.real_parts.nvidia_node import CARDS

pytestmark = [pytest.mark.long, pytest.mark.chain]

DEADLINE = 20
NEIGHBOURS = ("neighbour-0", "neighbour-1", "neighbour-2")


class Seen(NamedTuple):
    """What a Node said of a change."""

    state: str
    step: str
    has_lock: bool
    is_asking: bool
    answer: str
    is_tainted: bool
    is_paused: bool


class Drained:
    """The node, the controller and three pods that are in nobody's way."""

    def __init__(self, cards: MigCards) -> None:
        self.cards = cards
        cards.run_pods(cards.place, *NEIGHBOURS, restart="Always")
        self._neighbours = self._lives()

    def _lives(self) -> list[object]:
        return [self.cards.life(name) for name in NEIGHBOURS]

    def assert_nobody_else_noticed(self) -> None:
        """The pods of other cards run in the containers that they had."""
        assert self._lives() == self._neighbours

    def assert_given_back(self) -> None:
        """Nothing of lock, drain and pause is left; driver-builder takes a moment."""
        place = self.cards.place

        def left() -> dict[str, object]:
            node = place.cluster.node(place.node)
            found: dict[str, object] = {**self.cards.leftovers()}
            found |= {key: node for key in (DRAINING_ANNOTATION,) if key in node["metadata"]["annotations"]}
            return found | ({"taints": node["spec"]["taints"]} if node["spec"].get("taints") else {})

        place.cluster.wait("all is given back", lambda: not left() or None, timeout=SECONDS, seen=lambda: str(left()))

    def face(self, node: Json) -> Seen:
        """Say what is seen of a Node."""
        metadata = node["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        return Seen(
            state=labels.get(MIG_STATE_LABEL, ""),
            step=json.loads(annotations.get(MIG_ANNOTATION, "{}")).get("step", ""),
            has_lock="device-agent" in annotations.get(LOCK_ANNOTATION, ""),
            is_asking=DRAIN_REQUEST_ANNOTATION in annotations,
            answer=json.loads(annotations.get(DRAIN_STATE_ANNOTATION, "{}")).get("state", ""),
            is_tainted=any(taint["key"] == UPGRADING_TAINT for taint in node["spec"].get("taints") or ()),
            is_paused=labels.get(PLUGIN) == PAUSED_FOR_MIG_CHANGE,
        )

    def history(self) -> History:
        """Watch the Node."""
        return History(self.cards.place.client, NODES.path(), self.face)


@pytest.fixture(scope="module")
def drained(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drained]:
    """Have users of what goes drained."""
    with ExitStack() as stack:
        cards = stack.enter_context(mig_cards(ground, tmp_path_factory.mktemp("d")))
        stack.enter_context(draining_controller(ground, tmp_path_factory.mktemp("c"), cards.place))
        cards.use(MIXED, drain=True)
        cards.node.start("nvml")
        cards.node.start("agent")
        cards.offers(whole=4)
        cards.deploy_plugin()
        yield Drained(cards)


@pytest.fixture(scope="module")
def whole(drained: Drained) -> Iterator[Evictable]:
    """Have a pod with the fourth card, which takes its time to end."""
    with Evictable("trains", drained.cards.place, lingers=True) as made:
        yield made


def entry(card: int, **devices: int) -> list[Json]:
    """Ask for instances of one card."""
    return [{"devices": [card], "mig-enabled": True, "mig-devices": devices}]


@pytest.fixture(scope="module")
def card(drained: Drained, whole: Evictable) -> int:
    """Return the card that is changed, by the file of layouts: that of the fourth pod."""
    ((card,),) = drained.cards.cards(whole.running())
    drained.cards.write(sevens=entry(card, **{"1g.5gb": 7}), threes=entry(card, **{"3g.20gb": 2}))
    return card


def test_a_pod_with_the_card_is_drained_by_driver_builder_and_no_other(
    drained: Drained, whole: Evictable, card: int
) -> None:
    """It is evicted under the agent's lock, and nothing of its card is touched until it has ended.

    Then the mode is switched. The pod that comes in its place finds no card. Nothing of the drain is left.
    """
    cards, uids, life = drained.cards, whole.uids(), drained.cards.life(whole.running())
    with drained.history() as history:
        cards.ask("sevens")
        whole.is_evicted()
        message = cards.answers("draining", "is terminating")
        cards.reaches("pending", f"card {card}", life.pod)
        assert (cards.changes(), cards.life(life.pod)) == ([], life)
        whole.end()
        cards.reaches("success")
    cards.offers(whole=3, one=7)
    seen = [one for one in history.faces if isinstance(one, Seen)]
    asked = [one for one in seen if one.is_asking]
    assert any(one.is_tainted and one.answer == "draining" for one in asked)
    assert {one.has_lock for one in asked} == {True}
    assert any(one.step == "changing" and one.has_lock and one.is_paused for one in seen)
    assert whole.waits()
    assert whole.uids().isdisjoint(uids)
    drained.assert_given_back()
    drained.assert_nobody_else_noticed()
    assert all(cards.node.machine.uuid(card) in line for line in cards.changes())
    assert [len(cards.layout(one)) for one in CARDS] == [7 if one == card else 0 for one in CARDS]
    print(f"\ncard {card}: {message}")


def test_a_budget_that_refuses_keeps_pod_and_layout_until_it_allows(drained: Drained, card: int) -> None:
    """After the deadline the lock is released, the Node names pod and budget, and the drain is tried again.

    The pod has an instance. When the budget is gone, it is evicted, and the card becomes as asked.
    """
    cards = drained.cards
    cards.node.end("agent")
    cards.node.environment[DRAIN_SECONDS] = str(DEADLINE)
    cards.node.start("agent")
    with Evictable("infers", cards.one) as user:
        name = user.running()
        user.keep()
        life, before = cards.life(name), cards.changes()
        with drained.history() as history:
            cards.ask("threes")
            message = cards.reaches("pending", f"{NAMESPACE}/{name}", f"not drained within {DEADLINE} seconds")
            assert f"{name} stays: " in message
            assert "budget" in message
            assert (cards.changes(), cards.life(name)) == (before, life)
            for _ in range(2):
                wait_for_lock(cards, is_there=True)
                wait_for_lock(cards, is_there=False)
            assert (cards.changes(), cards.life(name)) == (before, life)
        refused = [one for one in history.faces if isinstance(one, Seen)]
        assert any(one.answer == "failed" and not one.is_tainted for one in refused)
        assert {one.state for one in refused if one.has_lock} == {"pending"}
        assert not any(one.is_paused for one in refused)
        user.release()
        cards.reaches("success")
        assert user.waits() != name
    cards.offers(whole=3, three=2)
    assert cards.layout(card) == (("3g.20gb", 0, (3,)), ("3g.20gb", 4, (3,)))
    drained.assert_given_back()
    drained.assert_nobody_else_noticed()
    print(f"\npending: {message}")


def wait_for_lock(cards: MigCards, *, is_there: bool) -> None:
    """Wait until the agent has taken the lock of the Node, or has released it."""
    cards.place.cluster.wait(
        f"the lock is {'taken' if is_there else 'released'}",
        lambda: (LOCK_ANNOTATION in cards.leftovers()) is is_there or None,
        timeout=SECONDS,
        seen=lambda: str(cards.said_of()),
        every=0.1,
    )
