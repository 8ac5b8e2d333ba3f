"""A real kubelet and NVIDIA's devices: cards that come back, another plugin, a boot with other numbers, MIG, islands.

Each test has an agent and a ``/dev`` of its own.
"""

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.kubelet.channel import call
from device_agent.kubelet.plugin import endpoint
from device_agent.protocol.messages import (
    PREFERRED_ALLOCATION,
    ContainerPreferredAllocationRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from kube_api.resources import EVENTS
from testbed.testbed import Testbed
from tests.support.real_parts import host_containers, reference_plugin
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Place
from tests.support.real_parts.nvidia_node import (
    CAPABILITIES,
    CARDS,
    COMMON,
    PAIRS,
    RESOURCE,
    Node,
    device_nodes,
    node_with_cards,
)

pytestmark = pytest.mark.long

OTHER_DEVICE = Path("/dev/driverwright-other")
ZERO = os.makedev(1, 5)
ROUNDS, SEED = 50, 33
GIVEN = "of nvidia.com/gpu was given as /dev/nvidia"


class Other:
    """A stand-in for NVIDIA's plugin, with one device: ``tests/data/reference-plugin`` on the socket that it has."""

    def __init__(self, folder: Path, plugins: Path) -> None:
        self._folder = folder
        self._plugins = plugins
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = plugins / "nvidia-gpu.sock"

    def start(self) -> None:
        """Start it; it registers itself."""
        self._process = reference_plugin.start(
            self._folder, RESOURCE, str(OTHER_DEVICE), plugins=self._plugins, socket=self.socket.name
        )

    def end(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)


@pytest.fixture
def node(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Have a node with four cards, on which nothing runs yet, and of which the kubelet knows nothing any more."""
    with node_with_cards(ground, tmp_path_factory.mktemp("n")) as made:
        place = made.place
        place.cluster.wait(
            "no card is offered", lambda: place.count("allocatable") in (None, "0") or None, timeout=SECONDS
        )
        yield made


@pytest.fixture
def other(node: Node, tmp_path: Path) -> Iterator[Other]:
    """Have another plugin of the resource that does not run yet, and its device."""
    os.mknod(OTHER_DEVICE, 0o020666, ZERO)
    made = Other(tmp_path, node.plugins)
    yield made
    made.end()
    OTHER_DEVICE.unlink()


def test_another_plugin_that_is_there_first_keeps_the_resource(node: Node, other: Other) -> None:
    """The agent is not ready, names its socket, and makes no device node; it takes over when the other one ends."""
    other.start()
    node.place.wait_for("1", "1")
    node.start_pod("rival-theirs", 1)
    container = container_of(node, "rival-theirs")
    late = CARDS[2:]
    for card in late:
        node.machine.remove(card)
    node.start("nvml")
    node.start("agent")
    node.wait_for_page("/readyz", f"another plugin answers on {other.socket}", is_well=False)
    # Nodes are made at a look at the cards: there was a whole one, and the kubelet does not ask before a start yet.
    for card in late:
        node.machine.bring_back(card)
        node.wait_for_card(card)
    assert device_nodes() == {}
    node.wait_for_page("/metrics", f'device_agent_registrations_total{{resource="{RESOURCE}",result="success"}} 0\n')
    assert (node.place.count("capacity"), node.place.count("allocatable")) == ("1", "1")
    other.end()
    node.place.wait_for("4", "4")
    node.wait_for_page("/readyz", "")
    assert container_of(node, "rival-theirs") == container


def test_another_plugin_that_comes_later_has_the_resource_until_it_ends(node: Node, other: Other) -> None:
    """The kubelet has the other's device, the agent steps back and takes over again; its pod lives on."""
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "4")
    node.start_pod("rival-ours", 2)
    cards, container = node.cards_of("rival-ours"), container_of(node, "rival-ours")
    other.start()
    node.place.wait_for("1", "1")
    node.wait_for_page("/readyz", f"another plugin answers on {other.socket}", is_well=False)
    other.end()
    node.place.wait_for("4", "4")
    node.wait_for_page("/readyz", "")
    node.start_pod("rival-next", 2)
    assert node.cards_of("rival-next") == {*CARDS} - cards
    assert container_of(node, "rival-ours") == container


def test_after_a_boot_with_other_numbers_no_container_starts_with_another_card(node: Node) -> None:
    """Card 0 is lost at the boot, so each path that the kubelet remembers is another card's. New pods get their own.

    Until the agent is registered the kubelet does not ask it, and containers do not start because there is no node.
    """
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "4")
    pods = {}
    for number in CARDS:
        node.start_pod(name := f"boot-{number}", 1, restart="Always")
        (card,) = node.cards_of(name)
        pods[card] = name
    containers = [container_of(node, name) for name in pods.values()]
    node.place.ground.host_node.kill()
    for name in ("agent", "nvml"):
        node.end(name, signal.SIGKILL)
    for container in containers:
        host_containers.kill(container)
    node.reboot_without(0)
    node.place.ground.host_node.start()
    for card, name in pods.items():
        wait_for_event(node, name, f"/dev/nvidia{card}")
    assert device_nodes() == {}
    node.start("nvml")
    node.start("agent")
    node.place.wait_for("3", "3")
    wait_for_event(node, pods[0], f"{GIVEN}0 195:0, and it is not known what it is now")
    for card in (1, 2, 3):
        now = card - 1
        words = f"{GIVEN}{card} 195:{card}, and is /dev/nvidia{now} 195:{now} now: delete the pod"
        wait_for_event(node, pods[card], words)
    for name in pods.values():
        assert "running" not in state_of(node, name), node.place.why(name)
        node.place.delete_pod(name)
    node.start_pod("boot-new", 2)
    assert node.cards_of("boot-new") == PAIRS[1]


def test_cards_come_back_when_they_answer_and_the_driver_asks_for_nothing(node: Node) -> None:
    """A verdict outlives the agent; a program's own error takes no card; one that is lost leaves the others.

    Without NVML nothing is given, and pods live on.
    """
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "4")
    node.machine.set(0, "recovery", 1)
    node.machine.xid(0, 79)
    node.place.wait_for("4", "3")
    node.end("nvml")
    node.end("agent", signal.SIGKILL)
    node.start("agent")
    node.start("nvml")
    # Known at once, though the error is not said again.
    node.place.wait_for("4", "3")
    node.machine.set(0, "recovery", 0)
    node.machine.xid(1, 31)
    node.place.wait_for("4", "4")
    node.machine.lose(3)
    node.place.wait_for("4", "3")
    node.start_pod("cards-three", 3)
    assert node.cards_of("cards-three") == {0, 1, 2}
    node.machine.recover(3)
    node.place.wait_for("4", "4")
    node.end("nvml", signal.SIGKILL)
    node.place.wait_for("4", "0")
    assert "running" in state_of(node, "cards-three")
    node.start("nvml")
    node.place.wait_for("4", "4")


def test_mixed_offers_instances_beside_cards(node: Node) -> None:
    """A pod with an instance has its card's node and the two that open it; an instance that goes is offered no more."""
    node.configure("nvidia:\n  migStrategy: mixed\n")
    opens = {node.split(1, gi, minors): minors for gi, minors in {7: (66, 67), 8: (75, 76)}.items()}
    instances = Place(node.place.ground, node.place.node, "nvidia.com/mig-1g.5gb")
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("3", "3")
    instances.wait_for("2", "2")
    node.start_pod("mig-mixed", 1, place=instances)
    nodes, (uuid,) = node.seen_by("mig-mixed")
    assert nodes == {*COMMON, "nvidia1", *(f"{CAPABILITIES}{minor}" for minor in opens.pop(uuid))}
    (free,) = opens
    node.machine.remove_mig(1, free)
    instances.wait_for("1", "1")
    node.place.wait_for("3", "3")
    assert "running" in state_of(node, "mig-mixed")


def test_single_offers_instances_as_cards(node: Node) -> None:
    """A pod with one has its card's node and the two that open it; an instance that goes is offered no more."""
    node.configure("nvidia:\n  migStrategy: single\n")
    first = {card: node.split(card, 1, (10 * card + 3, 10 * card + 4)) for card in CARDS}
    second = node.split(0, 2, (5, 6))
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("5", "5")
    node.machine.remove_mig(0, second)
    node.place.wait_for("4", "4")
    node.start_pod("mig-single", 1)
    nodes, (uuid,) = node.seen_by("mig-single")
    (card,) = (card for card, its in first.items() if its == uuid)
    opened = {f"{CAPABILITIES}{10 * card + minor}" for minor in (3, 4)}
    assert nodes == {*COMMON, f"nvidia{card}", *opened}


def test_two_cards_are_of_one_island_each_time(node: Node) -> None:
    """Fifty of fifty requests stay on one pair, whichever cards are free and in whatever order the kubelet names them.

    The plugin's own socket is asked, as the kubelet does before it allocates: so many pods would take minutes.
    """
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "4")
    chance = random.Random(SEED)  # noqa: S311 - it keeps no secret
    asked = [chance.sample(CARDS, chance.choice((3, 4))) for _ in range(ROUNDS)]
    requests = tuple(
        ContainerPreferredAllocationRequest(available=tuple(map(node.machine.uuid, free)), size=2) for free in asked
    )
    socket = str(node.plugins / endpoint(RESOURCE))
    found = [asyncio.run(_preferred(socket, request)) for request in requests]
    cards = [{card for card in CARDS if node.machine.uuid(card) in ids} for ids in found]
    assert [(free, chosen) for free, chosen in zip(asked, cards, strict=True) if chosen not in PAIRS] == []


async def _preferred(socket: str, request: ContainerPreferredAllocationRequest) -> tuple[str, ...]:
    """Ask a plugin which devices one container should get."""
    message = PreferredAllocationRequest(containers=(request,))
    answer = await call(socket, PREFERRED_ALLOCATION, message, PreferredAllocationResponse, SECONDS)
    return answer.containers[0].device_ids


def state_of(node: Node, name: str) -> dict[str, object]:
    """Return the state of a pod's container; empty if it has none yet."""
    statuses = node.place.pod(name)["status"].get("containerStatuses") or [{"state": {}}]
    state: dict[str, object] = statuses[0]["state"]
    return state


def container_of(node: Node, name: str) -> str:
    """Wait until the container of a pod runs; returns its id."""
    place = node.place
    place.cluster.wait(
        f"{name} runs", lambda: "running" in state_of(node, name) or None, timeout=SECONDS, seen=lambda: place.why(name)
    )
    return reference_plugin.container_of(place.pod(name))


def wait_for_event(node: Node, name: str, words: str) -> None:
    """Wait until an Event of a pod has some words."""
    path, selector = EVENTS.path(namespace=NAMESPACE), f"involvedObject.name={name},type=Warning"

    def messages() -> str:
        items = node.place.client.list(path, field_selector=selector).items
        return "\n".join(item.get("message") or "" for item in items)

    node.place.cluster.wait(
        f"an Event of {name} has {words!r}", lambda: words in messages() or None, timeout=SECONDS, seen=messages
    )
