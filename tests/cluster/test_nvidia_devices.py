"""A real kubelet and NVIDIA's devices: cards that are offered, given, broken and shared.

The tests build on each other, in the order they are written in. Cards that come back: ``test_nvidia_devices_long.py``.
"""

import os
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

POD = "cards-first"

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


def test_a_pod_has_two_cards_that_nvlink_joins(node: Node) -> None:
    """Whichever pair it is; it sees their device nodes, and its environment names them."""
    node.start_pod(POD, 2)
    assert node.cards_of(POD) in PAIRS


def test_an_error_that_wants_a_reset_takes_its_card_away(node: Node) -> None:
    """And no other card; its pod lives on."""
    began = time.monotonic()
    card = min(node.cards_of(POD))
    node.machine.set(card, "recovery", 1)
    node.machine.xid(card, 79)
    node.place.wait_for("4", "3")
    print(f"\nXid 79 to allocatable 3: {time.monotonic() - began:.1f} s")
    assert node.place.pod(POD)["status"]["phase"] == "Running"


def test_a_profile_shares_the_cards_that_nobody_has(node: Node) -> None:
    """Those of a pod stay whole until it has ended; more of it: ``test_gpu_profiles_long.py``."""
    profiles = node.folder / "profiles"
    profiles.mkdir()
    (profiles / "default").write_text(SLICES)
    node.flags = {"profiles": profiles, "pod-resources": node.link("r", "pod-resources") / "kubelet.sock"}
    node.end("agent")
    node.start("agent")
    shared = Place(node.place.ground, node.place.node, f"{RESOURCE}.shared")
    shared.wait_for("16", "8")
    node.place.wait_for("2", "1")
    node.start_pod("cards-share", 1, place=shared)
    (card,) = node.cards_of("cards-share")
    assert card not in node.cards_of(POD)
