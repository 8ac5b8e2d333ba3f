"""A real kubelet and NVIDIA's devices: cards that are offered, given, broken, lost and shared.

The tests build on each other, in the order they are written in.
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from testbed.testbed import Testbed
from tests.support.real_parts.device_agent import Place
from tests.support.real_parts.nvidia_node import (
    CARDS,
    COMMON,
    MAJOR,
    PAIRS,
    RESOURCE,
    Node,
    device_nodes,
    node_with_cards,
)

pytestmark = pytest.mark.chain

SLICES = f"""\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{{name: {RESOURCE}, replicas: 4}}]
"""


@pytest.fixture(scope="module")
def node(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Have four cards offered on this machine."""
    with node_with_cards(ground, tmp_path_factory.mktemp("n")) as made:
        made.start("agent")
        made.start("nvml")
        yield made


def test_four_cards_are_offered(node: Node) -> None:
    """Once their device nodes are made, which is when the kubelet knows the resource."""
    node.place.wait_for("4", "4")
    cards = {f"nvidia{card}": os.makedev(MAJOR, card) for card in CARDS}
    assert device_nodes() == {**cards, **COMMON}


@pytest.mark.parametrize("name", ["cards-first", "cards-second"])
def test_a_pod_has_two_cards_that_nvlink_joins(node: Node, name: str) -> None:
    """Whichever pair it is; it sees their device nodes, and its environment names them."""
    node.start_pod(name, 2)
    assert node.cards_of(name) in PAIRS


def test_an_error_that_wants_a_reset_takes_its_card_away(node: Node) -> None:
    """And no other card; pods live on."""
    began = time.monotonic()
    node.machine.set(0, "recovery", 1)
    node.machine.xid(0, 79)
    node.place.wait_for("4", "3")
    print(f"\nXid 79 to allocatable 3: {time.monotonic() - began:.1f} s")
    assert {node.place.pod(name)["status"]["phase"] for name in ("cards-first", "cards-second")} == {"Running"}


def test_the_verdict_outlives_the_agent(node: Node) -> None:
    """An agent that is killed knows it at once when it is started again, though the error is not said again."""
    node.end("nvml")
    node.end("agent", signal.SIGKILL)
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "3")


def test_a_card_is_back_when_the_driver_asks_for_nothing_any_more(node: Node) -> None:
    """And the card has answered twice. An error of a program on the card changes nothing."""
    node.machine.set(0, "recovery", 0)
    node.machine.xid(1, 31)
    node.place.wait_for("4", "4")


def test_a_lost_card_leaves_the_others(node: Node) -> None:
    """Three of four can be had, and the fourth one comes back when it answers."""
    for name in ("cards-first", "cards-second"):
        node.place.delete_pod(name)
    node.machine.lose(3)
    node.place.wait_for("4", "3")
    node.start_pod("cards-three", 3)
    assert node.cards_of("cards-three") == {0, 1, 2}
    node.machine.recover(3)
    node.place.wait_for("4", "4")


def test_without_nvml_nothing_is_given_and_pods_live_on(node: Node) -> None:
    """And all is as before when it is back."""
    node.end("nvml", signal.SIGKILL)
    node.place.wait_for("4", "0")
    assert node.place.pod("cards-three")["status"]["phase"] == "Running"
    node.start("nvml")
    node.place.wait_for("4", "4")


def test_a_profile_shares_the_card_that_nobody_has(node: Node) -> None:
    """Those of a pod stay whole until it has ended; more of it: ``test_gpu_profiles_long.py``."""
    profiles = node.folder / "profiles"
    profiles.mkdir()
    (profiles / "default").write_text(SLICES)
    node.flags = {"profiles": profiles, "pod-resources": node.link("r", "pod-resources") / "kubelet.sock"}
    node.end("agent")
    node.start("agent")
    shared = Place(node.place.ground, node.place.node, f"{RESOURCE}.shared")
    shared.wait_for("16", "4")
    node.place.wait_for("3", "3")
    node.start_pod("cards-share", 1, place=shared)
    assert node.cards_of("cards-share") == {3}
