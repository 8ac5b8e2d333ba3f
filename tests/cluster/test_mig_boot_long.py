"""A real kubelet, MIG layouts and boots: a switch that wants one, and instances and numbers that one takes away.

A boot here ends containers, kubelet, agent and the container ``nvml``; the latter two see another boot id, clocks that
begin anew and a ``/dev`` without cards. The tests build on each other, in their order.
"""

import json
import signal
from collections.abc import Iterator

import pytest

from kube_api.names import LOCK_ANNOTATION, REBOOT_REQUIRED_LABEL
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.real_parts.cards_with_pods import AGENT_POD
from tests.support.real_parts.device_agent import Json
from tests.support.real_parts.history import History
from tests.support.real_parts.mig_cards import MigCards, mig_cards
from tests.support.real_parts.nvidia_node import CARDS, device_nodes

pytestmark = [pytest.mark.long, pytest.mark.chain]

SWITCHED, RENUMBERED = 1, 2
"""The cards that are partitioned: with a boot, and into another minor number."""
MINORS = {0: 1, 1: 3, 2: 0, 3: 2}
NEW_MINOR = 7
SEVEN = {"mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
ONE_CARD = [{"devices": [SWITCHED], **SEVEN}]
TWO_CARDS = [{"devices": [SWITCHED, RENUMBERED], **SEVEN}]


@pytest.fixture(scope="module")
def cards(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigCards]:
    """Have four whole cards offered, of which one wants a reset to switch its mode."""
    with mig_cards(ground, tmp_path_factory.mktemp("b")) as made:
        made.node.machine.switch_wants_reset(SWITCHED)
        made.write(**{"one-card": ONE_CARD, "two-cards": TWO_CARDS})
        made.node.start("nvml")
        made.node.start("agent")
        made.offers(whole=4)
        made.deploy_plugin()
        yield made


def boots(cards: MigCards, boot_id: str, minors: dict[int, int]) -> int:
    """Boot, and start what a node starts; returns how much the agent had logged before."""
    cards.node.boot(boot_id, minors)
    cards.delete(AGENT_POD)
    cards.stand_for_agent()
    assert device_nodes() == {}
    since = cards.said()
    cards.node.start("agent")
    cards.node.start("nvml")
    return since


def lines(cards: MigCards, since: int, words: str) -> list[int]:
    """Number the lines that the agent has logged since, which have some words."""
    found = cards.log.read_bytes()[since:].decode().splitlines()
    return [number for number, line in enumerate(found) if words in line]


def assert_made_before_registered(cards: MigCards, since: int) -> None:
    """A card was changed, and nothing was registered before the last one was."""
    changed, registered = (lines(cards, since, words) for words in ("mig: asks for", "registered with the kubelet"))
    assert changed
    assert min(registered) > max(changed)


def boot_ids(node: Json) -> str:
    """Return in which boot the lock of a Node was written."""
    lock = node["metadata"].get("annotations", {}).get(LOCK_ANNOTATION)
    return json.loads(lock)["bootID"] if lock else ""


def test_a_switch_that_wants_a_reset_asks_for_a_boot(cards: MigCards) -> None:
    """State and label say so, also after a SIGKILL of the agent. The others are offered, and nothing is repeated."""
    cards.ask("one-card")
    message = cards.reaches("rebooting", "reboot the node", f"card {SWITCHED}")
    assert cards.place.cluster.labels(cards.place.node)[REBOOT_REQUIRED_LABEL] == "mig"
    cards.offers(whole=3)
    before, since = cards.changes(), cards.said()
    cards.node.end("agent", signal.SIGKILL)
    cards.node.start("agent")
    cards.logs(since, "mig:", "reboot the node")
    cards.offers(whole=3)
    assert cards.reaches("rebooting") == message
    assert cards.changes() == before
    assert cards.profiles() == [[] for _ in CARDS]
    print(f"\nrebooting: {message}")


def test_the_boot_goes_on_with_the_change(cards: MigCards) -> None:
    """Nothing is registered before the layout is there, the lock is of the new boot, and pods have the new numbers."""
    with History(cards.place.client, NODES.path(), boot_ids) as history:
        since = boots(cards, "second-boot", MINORS)
        cards.reaches("success")
    cards.offers(whole=3, one=7)
    assert_made_before_registered(cards, since)
    assert "second-boot" in history.faces
    assert cards.leftovers() == {}
    cards.run_pods(cards.one, "slice", restart="Always")
    assert cards.instances_of("slice") == [(SWITCHED, "1g.5gb")]
    cards.run_pods(cards.place, "whole-0", "whole-1", "whole-2")
    assert sorted(card for (card,) in cards.cards("whole-0", "whole-1", "whole-2")) == sorted({*CARDS} - {SWITCHED})
    numbers = {name: device % 256 for name, device in device_nodes().items() if name[6:].isdigit()}
    assert numbers == {f"nvidia{minor}": minor for minor in MINORS.values()}
    cards.delete("whole-0", "whole-1", "whole-2")


def test_a_boot_that_takes_instances_has_them_made_again_first(cards: MigCards) -> None:
    """The label asks for nothing new. The pod that had an instance starts again with the same one, or another does.

    Newer kubelets fail a pod whose device nobody has registered yet after a boot: the device manager's
    ``devicesToAllocate``, kubernetes/kubernetes issue 125579.
    """
    layout, count = cards.layout(SWITCHED), len(cards.changes())
    had, life = cards.instances_of("slice"), cards.life("slice")
    since = boots(cards, "third-boot", MINORS)
    cards.logs(since, "mig: the layout is as it is to be")
    cards.reaches("success")
    cards.offers(whole=3, one=7)
    assert_made_before_registered(cards, since)
    assert cards.layout(SWITCHED) == layout
    assert all(cards.node.machine.uuid(SWITCHED) in line for line in cards.changes()[count:])
    failed = cards.runs_or_failed("slice")
    if failed:
        print(f"\nafter the boot: {failed['reason']}: {failed['message']}")
        assert failed["reason"] == "UnexpectedAdmissionError"
        assert f"cannot allocate unregistered device {cards.one.resource}" in failed["message"]
        cards.delete("slice")
        cards.run_pods(cards.one, "slice", restart="Always")
    assert cards.instances_of("slice") == had
    again = cards.life("slice")
    assert (again.uid == life.uid, again.container != life.container) == (failed is None, True)
    assert cards.leftovers() == {}


def test_a_minor_number_that_changes_with_the_mode_reaches_pods(cards: MigCards) -> None:
    """The card's node, and those that open its instances, are made anew; the pod of another card goes on."""
    cards.node.machine.set(RENUMBERED, "newminor", NEW_MINOR)
    life = cards.life("slice")
    cards.makes("two-cards")
    cards.offers(whole=2, one=14)
    assert cards.minor(RENUMBERED) == NEW_MINOR
    cards.run_pods(cards.one, "renumbered", count=7)
    assert (RENUMBERED, "1g.5gb") in cards.instances_of("renumbered")
    assert cards.life("slice") == life
