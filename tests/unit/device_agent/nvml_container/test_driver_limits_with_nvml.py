"""Limits that the driver keeps, by the container's processes with the real pynvml, on the test library.

A folder stands for the node, with a tree of cgroup v2.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.requests import FOLLOW_USE
from device_agent.gpu_state.state import FAILED, OK
from device_agent.gpu_state.use import KeptLimit, Use
from device_agent.memory_limits.by_driver import Refusal
from device_agent.memory_limits.keeper import Keeper
from device_agent.memory_limits.watch import Ending
from device_agent.nvml_client.lines import Pauses
from device_agent.nvml_client.use_client import UseClient
from device_agent.usage.attribution import Allocated
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.device_agent.memory_limits.examples import given_as, held
from tests.unit.device_agent.nvml_container.node_folder import OTHER_POD, OTHER_UID, POD, UID, two_pods
from tests.unit.device_agent.nvml_container.running import SECONDS, Client, WithNvml, wait_for

GIB = 1 << 30
UNLIMITED = 2**64 - 1
FOLDER, OTHER_FOLDER = f"kubepods/burstable/pod{UID}", f"kubepods/pod{OTHER_UID}"
CONTAINERS = (f"{FOLDER}/0a", f"{FOLDER}/0b")
PODS = (POD, OTHER_POD)
Limits = dict[tuple[str, str], int]


class Node:
    """A node with two GPUs, the first of which keeps limits, and its container nvml."""

    def __init__(self, root: Path, library: Path, *, may_limit: bool = True) -> None:
        self.machine = FakeMachine(root / "machine", A100_40, 2)
        self.machine.set(0, "limits", 1)
        self.cards = (self.machine.uuid(0), self.machine.uuid(1))
        self.folder = root / "sys/fs/cgroup"
        self.folder.mkdir(parents=True)
        (self.folder / "cgroup.controllers").touch()
        two_pods(root)
        self.logs = root / "var/log/pods"
        environment = {**self.machine.environment(), "FAKE_NVML_LOG": str(root / "nvml.log")}
        if may_limit:
            environment["DEVICE_AGENT_ENDS_PROCESSES"] = "true"
        self.running = WithNvml(root, library, environment, silence=3.0)
        self.user: Client

    def cgroup(self, *paths: str, dmem: bool = False) -> None:
        """Have cgroups."""
        for path in paths:
            (self.folder / path).mkdir(parents=True, exist_ok=True)
            if dmem:
                (self.folder / path / "dmem.max").touch()

    def ask(self, *limits: PodLimit) -> None:
        """Ask for limits."""
        self.user.ask(FOLLOW_USE, PODS, limits)

    def limit(self, gib: int, pod: str = POD, card: int = 0, devices: int = 1) -> PodLimit:
        """Make a limit."""
        return PodLimit(self.cards[card], pod, gib * GIB, devices)

    def kept(self, *limits: PodLimit) -> Use:
        """Wait until just these are kept."""
        wanted = tuple(KeptLimit(*one[:3]) for one in limits)
        return self.user.use(lambda use: use.kept == wanted)

    def limits(self) -> Limits:
        """Return what the driver keeps: card and cgroup -> bytes."""
        start = f"{self.folder}/"
        return {(card, folder.removeprefix(start)): hard for (card, folder), (_, hard) in self.machine.limits().items()}


@pytest.fixture
def node(tmp_path: Path, library: Path) -> Iterator[Node]:
    """Start the container, with somebody who follows use."""
    node = Node(tmp_path, library)
    with node.running:
        node.user = node.running.user(PODS)
        yield node


def test_a_pods_folder_has_its_limit_and_a_pod_that_comes_later_gets_its_own(node: Node) -> None:
    """With a sample after its folder is there; without dmem it is the pod's folder."""
    card = node.cards[0]
    node.cgroup(*CONTAINERS)
    first, second = node.limit(10, devices=2), node.limit(5, OTHER_POD)
    node.ask(first, second)
    assert node.kept(first).refused == {}
    assert node.limits() == {(card, FOLDER): 10 * GIB}
    node.cgroup(f"{OTHER_FOLDER}/0c")
    node.kept(first, second)
    assert node.limits() == {(card, FOLDER): 10 * GIB, (card, OTHER_FOLDER): 5 * GIB}


def test_containers_have_the_limit_where_the_kernel_has_dmem(node: Node) -> None:
    """Each of them that of the pod; the pod's with two devices is not kept by that, and has to be watched."""
    card = node.cards[0]
    node.cgroup(*CONTAINERS, dmem=True)
    node.ask(node.limit(10))
    node.kept(node.limit(10))
    assert node.limits() == {(card, one): 10 * GIB for one in CONTAINERS}
    node.ask(node.limit(20, devices=2))
    use = node.user.use(lambda use: not use.kept and bool(use.refused))
    assert use.refused == {
        card: "a pod has several devices of the card: each of its containers has the pod's whole limit"
    }
    wait_for(lambda: node.limits() == {(card, one): 20 * GIB for one in CONTAINERS}, "the other limit")


def test_a_limit_that_is_changed_or_taken_back_is(node: Node) -> None:
    """What is set is set anew, or lifted; also where nobody follows use any more."""
    card = node.cards[0]
    node.cgroup(FOLDER, OTHER_FOLDER)
    node.ask(node.limit(10), node.limit(5, OTHER_POD))
    node.kept(node.limit(10), node.limit(5, OTHER_POD))
    node.ask(node.limit(12))
    node.kept(node.limit(12))
    assert node.limits() == {(card, FOLDER): 12 * GIB, (card, OTHER_FOLDER): UNLIMITED}
    node.ask()
    node.user.close()
    wait_for(lambda: set(node.limits().values()) == {UNLIMITED}, "the end of the limits")


def test_limits_stay_while_nobody_says_anything_of_them(node: Node) -> None:
    """As while the agent starts again: its first request is without limits. And they are lifted when it says so."""
    node.cgroup(FOLDER)
    node.ask(node.limit(10))
    node.kept(node.limit(10))
    node.user.close()
    node.user = node.running.user(PODS)
    node.kept()
    assert node.limits() == {(node.cards[0], FOLDER): 10 * GIB}
    node.ask()
    wait_for(lambda: node.limits() == {(node.cards[0], FOLDER): UNLIMITED}, "the end of the limit")


def test_a_new_process_lifts_no_limit_that_it_has_not_set(node: Node) -> None:
    """It keeps what is in force: it cannot know whose limit that is."""
    node.cgroup(FOLDER)
    node.ask(node.limit(10))
    node.kept(node.limit(10))
    follower = node.running.follower()
    node.machine.hang("power", 0)
    follower.state(lambda state: state.status == FAILED)
    node.machine.heal()
    at = follower.state(lambda state: state.status == OK).read_at
    node.user.use(lambda use: use.at > at and use.kept == (KeptLimit(*node.limit(10)[:3]),))
    node.ask()
    node.kept()
    assert node.limits() == {(node.cards[0], FOLDER): 10 * GIB}


def test_a_driver_that_hangs_while_a_limit_is_set_is_a_reason(node: Node) -> None:
    """Its process is killed, and the next one sets the limit."""
    node.cgroup(FOLDER)
    follower = node.running.follower()
    follower.state(lambda state: state.status == OK)
    node.machine.hang("setlimits", 0)
    node.ask(node.limit(10))
    assert follower.state(lambda state: state.status == FAILED).reason.startswith("NVML gave no answer for")
    node.machine.heal()
    node.kept(node.limit(10))


def test_a_card_that_keeps_no_limits_has_a_reason(node: Node) -> None:
    """Without the name of a pod's cgroup, of which there are always new ones. Other cards keep theirs."""
    node.cgroup(FOLDER, OTHER_FOLDER)
    amd = "0000:0a:00.0"
    node.ask(node.limit(10), node.limit(5, card=1), PodLimit(amd, POD, GIB))
    refused = node.kept(node.limit(10)).refused
    assert refused[node.cards[1]] == "this driver has no memory limits for this GPU, or the GPU is in MIG mode"
    assert refused.keys() == {node.cards[1], amd}
    node.machine.fault("setlimits", 4, gpu=0)
    node.ask(node.limit(10), node.limit(5, OTHER_POD))
    refused = node.kept(node.limit(10)).refused
    assert refused[node.cards[0]].startswith("NVML cannot limit the memory of a pod's cgroup: ")
    assert node.limits() == {(node.cards[0], FOLDER): 10 * GIB}


def test_a_card_in_mig_mode_keeps_none(node: Node) -> None:
    """NVML refuses it."""
    node.machine.add_mig(0, "1g.5gb", gi=7)
    node.cgroup(FOLDER)
    node.ask(node.limit(10))
    assert "MIG mode" in node.user.use(lambda use: bool(use.refused)).refused[node.cards[0]]
    assert node.limits() == {}


def test_cgroup_v1_has_no_limits(node: Node) -> None:
    """Its hierarchies have folders of the same names."""
    (node.folder / "cgroup.controllers").unlink()
    node.cgroup(FOLDER)
    node.ask(node.limit(10))
    assert "it has cgroup v1" in node.user.use(lambda use: bool(use.refused)).refused[node.cards[0]]
    assert node.limits() == {}


def test_a_lower_limit_of_somebody_else_stays(node: Node) -> None:
    """A higher one gives way, and comes back when ours is taken back."""
    card = node.cards[0]
    node.cgroup(FOLDER, OTHER_FOLDER)
    node.machine.set_limit(0, f"{node.folder}/{FOLDER}", 4 * GIB)
    node.machine.set_limit(0, f"{node.folder}/{OTHER_FOLDER}", 30 * GIB)
    node.ask(node.limit(10), node.limit(5, OTHER_POD))
    assert "somebody else" in node.kept(node.limit(5, OTHER_POD)).refused[card]
    assert node.limits() == {(card, FOLDER): 4 * GIB, (card, OTHER_FOLDER): 5 * GIB}
    node.ask()
    wait_for(lambda: node.limits()[card, OTHER_FOLDER] == 30 * GIB, "the limit of before")
    assert node.limits()[card, FOLDER] == 4 * GIB


def test_a_container_has_no_higher_limit_than_its_pod(node: Node) -> None:
    """NVIDIA's toolkit sets one by the pod's environment, and the driver takes the nearest; it comes back with ours."""
    card = node.cards[0]
    node.cgroup(*CONTAINERS)
    node.machine.set_limit(0, f"{node.folder}/{CONTAINERS[0]}", 30 * GIB)
    node.ask(node.limit(10))
    assert node.kept(node.limit(10)).refused == {}
    assert node.limits() == {(card, FOLDER): 10 * GIB, (card, CONTAINERS[0]): 10 * GIB}
    node.machine.set_limit(0, f"{node.folder}/{CONTAINERS[1]}", 4 * GIB)
    refused = node.user.use(lambda use: not use.kept and bool(use.refused)).refused
    assert refused == {card: "somebody else has set a lower limit, which stays"}
    node.ask()
    wait_for(lambda: node.limits()[card, CONTAINERS[0]] == 30 * GIB, "the limit of before")
    assert node.limits() == {
        (card, FOLDER): UNLIMITED, (card, CONTAINERS[0]): 30 * GIB, (card, CONTAINERS[1]): 4 * GIB,
    }  # fmt: skip


def test_a_pod_that_nobody_knows_for_a_while_keeps_its_limit(node: Node) -> None:
    """Its folder of logs is gone: it cannot be said which cgroup is its own, and what was set stays."""
    card = node.cards[0]
    node.cgroup(FOLDER, OTHER_FOLDER)
    node.ask(node.limit(10), node.limit(5, OTHER_POD))
    node.kept(node.limit(10), node.limit(5, OTHER_POD))
    (logs,) = node.logs.glob(f"*{UID}")
    logs.rmdir()
    node.kept(node.limit(5, OTHER_POD))
    assert node.limits()[card, FOLDER] == 10 * GIB
    node.ask()
    wait_for(lambda: set(node.limits().values()) == {UNLIMITED}, "the end of the limits")


def test_without_the_right_to_do_harm_no_limit_is_set(tmp_path: Path, library: Path) -> None:
    """Whoever asks, and whenever: the container's own arguments say that limits are kept."""
    node = Node(tmp_path, library, may_limit=False)
    node.cgroup(FOLDER)
    with node.running:
        node.user = node.running.user(PODS)
        node.ask(node.limit(10))
        at = node.user.use().at
        node.user.use(lambda use: use.at > at + 1.0)
    assert node.limits() == {}


class Usage:
    """What the keeper of an agent hears: the container's own use, and holders that a test says."""

    def __init__(self, socket: Path, held: tuple[Allocated, ...]) -> None:
        self.held = held
        self.client = UseClient(str(socket), Pauses())
        self.client.ask(PODS)

    @property
    def use(self) -> Use | None:
        """Return what the container said last."""
        return self.client.use

    @property
    def held_at(self) -> float:
        """Say that the kubelet was asked just now."""
        return seconds_since_boot()

    def end(self, process: EndRequest) -> bool:
        """End a process."""
        return self.client.end(process)

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Have drivers keep limits."""
        self.client.limit(limits)


def test_an_agent_has_the_shares_of_its_pods_kept_until_that_is_not_wanted_any_more(node: Node) -> None:
    """Each pod has its part of the card, in its own cgroup; what the other card refuses is told once, and watched."""
    first, second = node.cards
    node.cgroup(FOLDER, OTHER_FOLDER)
    shares = (f"{first}::0", f"{first}::1", f"{second}::0")
    usage = (held(shares[0], POD), held(shares[1], OTHER_POD), held(shares[2], OTHER_POD))
    told = asyncio.run(_an_agent(node, usage, shares))
    assert [one.card for one in told if isinstance(one, Refusal)] == [second]
    assert set(node.limits().values()) == {UNLIMITED}


async def _an_agent(node: Node, usage: tuple[Allocated, ...], shares: tuple[str, ...]) -> list[Ending | Refusal]:
    """Keep limits by the driver, and then by watching alone; returns what was told."""
    told: list[Ending | Refusal] = []
    first, second = node.cards

    async def tell(one: Ending | Refusal) -> None:
        told.append(one)

    async def until(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                await asyncio.sleep(0.02)

    async with AsyncExitStack() as stack:
        heard = Usage(node.running.socket, usage)
        stack.push_async_callback(heard.client.close)
        memory = MemorySettings(mode=MemoryMode.DRIVER)
        keeper = Keeper(heard, lambda: given_as(4, *shares), tell, memory, look=0.05)
        stack.push_async_callback(keeper.close)
        await until(lambda: len(keeper.samples()["memory_limit_kept"]) == 2 and bool(told))
        share = 10 * GIB
        assert node.limits() == {(first, FOLDER): share, (first, OTHER_FOLDER): share}
        limits = {(labels["UUID"], labels["pod"]) for labels, _ in keeper.samples()["memory_limit_bytes"]}
        assert limits == {(first, "train-0"), (first, "infer-0"), (second, "infer-0")}
        keeper.configure(replace(memory, mode=MemoryMode.WATCH))
        await until(lambda: set(node.limits().values()) == {UNLIMITED})
        await until(lambda: keeper.samples()["memory_limit_kept"] == [])
    return told
