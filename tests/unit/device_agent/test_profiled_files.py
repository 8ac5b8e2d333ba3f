"""Resources of the node's files that a profile shares: nobody who runs is hurt, and no device is given in two ways."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from device_agent.allocations.remembered import Allocations
from device_agent.config.config_file import Description, parse_description
from device_agent.config.options import Settings
from device_agent.devices.model import OfferedDevice, Policy, Traits, offered
from device_agent.profiles.current import Current, ProfileFolder
from device_agent.profiles.verdict import Verdict
from device_agent.sources.files.profiled_files import ProfiledFiles, Timing
from tests.unit.device_agent.host_tree import HostTree
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.pods import Pods

CARD, SHARED, PORT = "example.com/card", "example.com/card.shared", "example.com/port"
CONFIG = f"""\
resources:
- name: {CARD}
  groups: [{{paths: [{{path: /run/card*, type: Mount}}]}}]
- name: {PORT}
  groups: [{{count: 2, paths: [{{path: /run/port*, type: Mount}}]}}]
"""
SHARES = "version: v1\nsharing: {timeSlicing: {%sresources: [{name: example.com/card, replicas: %d%s}]}}\n"
PROFILES = {
    "default": "version: v1\n",
    "renamed": SHARES % ("renameByDefault: true, failRequestsGreaterThanOne: true, ", 4, ""),
    "two": SHARES % ("", 2, ""),
    "three": SHARES % ("", 3, ""),
    "port": "version: v1\nsharing: {timeSlicing: {resources: [{name: example.com/port, replicas: 3}]}}\n",
    "clash": SHARES % ("", 4, ", rename: example.com/port"),
    "broken": "version: v1\nsharin: {}\n",
}

Devices = dict[str, dict[str, OfferedDevice]]


class Folder(ProfileFolder):
    """Profiles on a disk that answers only while the node lets it."""

    def __init__(self, node: "Node") -> None:
        super().__init__(str(node.folder / "profiles"))
        self._answers = node.answers

    def read(self, asked: str, before: str = "") -> Current:
        """Wait for the disk, then read."""
        self._answers.wait(4 * SECONDS)
        return super().read(asked, before)


class Node:
    """A node with two cards and a port. ``shown``: what the kubelet was shown; ``pods``: what runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = HostTree(folder)
        for name in ("card0", "card1", "port0"):
            self.host.file(f"/run/{name}")
        (folder / "profiles").mkdir()
        for key, text in PROFILES.items():
            (folder / "profiles" / key).write_text(text)
        self.pods = Pods(folder)
        self.held: dict[tuple[str, str], tuple[str, int]] = {}
        self.shown: Devices = {}
        self.asked, self.boot, self.timing = "", "boot-1", Timing(users=0.0)
        self.answers = threading.Event()
        self.answers.set()
        self.woken = asyncio.Event()

    @property
    def settings(self) -> Settings:
        """Return the settings of its agent."""
        return Settings(
            root=self.host.path,
            profiles=str(self.folder / "profiles"),
            plugin_dir=str(self.folder / "plugins"),
            pod_resources=self.pods.path,
        )

    def agent_starts(self) -> None:
        """Have a source that knows what is on the disk."""
        self.given = Allocations(str(self.folder / "state"), self.boot)
        self.source = ProfiledFiles(self.settings, self.given, self.timing, Folder(self))
        self.source.start(self.woken.set)
        self.source.configure(parse_description(CONFIG, "config.yaml"))
        self.source.ask(self.asked)

    async def agent_restarts(self) -> None:
        """End as by SIGKILL, and start anew; the kubelet keeps its lists."""
        await self.source.close()
        self.agent_starts()

    def ask(self, key: str) -> None:
        """Have another profile."""
        self.asked = key
        self.source.ask(key)

    async def looks(self, *late: tuple[str, str]) -> None:
        """Look; the kubelet gets what is ``late`` before it has the new list."""
        self.woken.clear()
        await self.source.look()
        for resource, name in late:
            self.gives(resource, name)
        self.shown = {name: offered(units) for name, units in self.source.resources.items() if units is not None}

    async def until(self, counts: dict[str, tuple[int, int]]) -> None:
        """Look whenever the source asks for it, until these are healthy, and listed, by resource."""
        async with asyncio.timeout(SECONDS):
            while True:
                await self.looks()
                if self.counts() == counts:
                    return
                await self.woken.wait()

    async def knows(self) -> None:
        """Look until a profile has been read: on a busy machine that takes longer than a look waits for it."""
        async with asyncio.timeout(SECONDS):
            while True:
                await self.looks()
                if self.shown:
                    return
                await self.woken.wait()

    def counts(self) -> dict[str, tuple[int, int]]:
        """Count what the kubelet was shown."""
        return {
            name: (sum(one.unit.is_healthy for one in devices.values()), len(devices))
            for name, devices in self.shown.items()
        }

    def free(self) -> list[tuple[str, str]]:
        """Return what the kubelet may give, as far as it knows."""
        return [
            (name, one)
            for name, devices in self.shown.items()
            for one, device in devices.items()
            if device.unit.is_healthy and (name, one) not in self.held
        ]

    def gives(self, resource: str, name: str) -> None:
        """Give a device to a pod, as it was shown last."""
        unit = self.shown[resource][name].unit
        assert self.source.traits(resource).is_remembered if resource in self.source.resources else True
        self.given.begin(resource, {name: unit.shares})
        self.given.remember(resource, {name: (unit.id,)})
        self.given.end(resource, {name: unit.shares})
        self.runs(resource, name, unit.id, unit.shares)

    def runs(self, resource: str, name: str, unit: str, shares: int) -> None:
        """Have a pod that the kubelet shows."""
        self.pods.run(resource, name)
        self.held[resource, name] = unit, shares

    def ends(self, resource: str, name: str) -> None:
        """End a pod."""
        self.pods.end(resource, name)
        del self.held[resource, name]

    def unit(self, number: int) -> str:
        """Return the id of a card."""
        return sorted({device.unit.id for devices in self.shown.values() for device in devices.values()})[number]


def play(folder: Path, act: Callable[[Node], Awaitable[None]], moment: float = SECONDS) -> None:
    """Start a node with an agent, act, and end both; ``moment``: how long a look waits for profiles."""

    async def work() -> None:
        node = Node(folder)
        node.timing = node.timing._replace(moment=moment)
        await node.pods.start()
        node.agent_starts()
        try:
            async with asyncio.timeout(4 * SECONDS):
                await act(node)
        finally:
            await node.source.close()
            await node.pods.stop()

    asyncio.run(work())


def test_a_resource_is_shared_and_whole_again(tmp_path: Path) -> None:
    """Under its own name or a new one; the others are as they are described."""

    async def act(node: Node) -> None:
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        node.ask("renamed")
        await node.until({SHARED: (8, 8), PORT: (2, 2)})
        assert node.source.traits(SHARED) == Traits(is_remembered=True, one_share=True)
        assert node.source.traits(PORT) == Traits(is_remembered=True, policy=Policy.DISTRIBUTED)
        assert node.source.verdict.applied == "renamed"
        assert node.source.verdict.resources == (SHARED, PORT)
        node.ask("two")
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.ask("port")
        await node.until({CARD: (2, 2), PORT: (3, 3)})
        node.ask("")
        await node.until({CARD: (2, 2), PORT: (2, 2)})

    play(tmp_path, act)


def test_what_a_container_has_stays_as_it_was_given(tmp_path: Path) -> None:
    """Its device is not shared until it has ended, also after a SIGKILL; what is free changes at once."""

    async def act(node: Node) -> None:
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        held = node.unit(0)
        node.gives(CARD, held)
        node.ask("renamed")
        await node.until({CARD: (1, 1), SHARED: (4, 8), PORT: (2, 2)})
        assert held in node.source.verdict.message
        await node.agent_restarts()
        await node.until({CARD: (1, 1), SHARED: (4, 8), PORT: (2, 2)})
        node.ends(CARD, held)
        await node.until({SHARED: (8, 8), PORT: (2, 2)})
        node.gives(SHARED, f"{held}::3")
        node.ask("")
        await node.until({CARD: (1, 2), SHARED: (1, 1), PORT: (2, 2)})
        node.ends(SHARED, f"{held}::3")
        await node.until({CARD: (2, 2), PORT: (2, 2)})

    play(tmp_path, act)


def test_what_a_container_has_stays_where_another_resource_gets_its_device(tmp_path: Path) -> None:
    """The last good profile stays, and neither gives the device anew, as long as a container has a share of it."""
    path = "{path: /run/card0, type: Mount, mountPath: /run/same}"
    config = f"{CONFIG}- name: example.com/same\n  groups: [{{paths: [{path}]}}]\n"

    async def act(node: Node) -> None:
        node.ask("renamed")
        await node.until({SHARED: (8, 8), PORT: (2, 2)})
        held = node.unit(0)
        node.gives(SHARED, f"{held}::3")
        node.source.configure(parse_description(config, "config.yaml"))
        await node.until({SHARED: (8, 8), PORT: (2, 2)})
        assert "has a device that another resource has too" in node.source.verdict.message
        assert [one.mount_path for one in node.shown[SHARED][f"{held}::0"].unit.files] == ["/run/card0"]
        node.ask("")
        await node.until({CARD: (1, 1), SHARED: (1, 1), PORT: (2, 2), "example.com/same": (0, 1)})
        node.ends(SHARED, f"{held}::3")
        await node.until({CARD: (2, 2), PORT: (2, 2), "example.com/same": (1, 1)})
        assert [one.mount_path for one in node.shown["example.com/same"][held].unit.files] == ["/run/same"]

    play(tmp_path, act)


def test_ids_of_one_text_are_told_apart(tmp_path: Path) -> None:
    """A third of a card is not a half of it."""

    async def act(node: Node) -> None:
        node.ask("three")
        await node.until({CARD: (6, 6), PORT: (2, 2)})
        held = node.unit(0)
        node.gives(CARD, f"{held}::1")
        node.ask("two")
        await node.until({CARD: (3, 4), PORT: (2, 2)})
        await node.agent_restarts()
        await node.until({CARD: (3, 4), PORT: (2, 2)})

    play(tmp_path, act)


def test_what_is_given_while_its_way_ends_is_not_shared(tmp_path: Path) -> None:
    """The kubelet still had the list before."""

    async def act(node: Node) -> None:
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        held = node.unit(0)
        node.ask("renamed")
        while CARD in node.source.resources:
            node.woken.clear()
            await node.source.look()
            if CARD in node.source.resources:
                await node.woken.wait()
        node.gives(CARD, held)
        await node.until({CARD: (1, 1), SHARED: (4, 8), PORT: (2, 2)})

    play(tmp_path, act)


def test_pods_from_before_there_were_profiles_keep_their_devices(tmp_path: Path) -> None:
    """The agent has not remembered what they got."""

    async def act(node: Node) -> None:
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        held = node.unit(0)
        node.runs(CARD, held, held, 1)
        node.ask("renamed")
        await node.agent_restarts()
        await node.until({CARD: (1, 1), SHARED: (4, 8), PORT: (2, 2)})

    play(tmp_path, act)


def test_without_the_kubelets_answer_changes_wait(tmp_path: Path) -> None:
    """What nobody shares is offered; a new device of it, too. The reason is in the answer."""

    async def act(node: Node) -> None:
        await node.pods.stop()
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        assert node.source.verdict.message == ""
        node.host.file("/run/card2")
        await node.until({CARD: (3, 3), PORT: (2, 2)})
        node.ask("renamed")
        await node.looks()
        await node.woken.wait()
        await node.looks()
        assert node.counts() == {CARD: (3, 3), PORT: (2, 2)}
        assert "it is not known which devices are in use" in node.source.verdict.message
        node.host.file("/run/port1")
        await node.until({CARD: (3, 3), PORT: (4, 4)})
        await node.pods.start()
        await node.until({SHARED: (12, 12), PORT: (4, 4)})

    play(tmp_path, act)


@pytest.mark.parametrize("key", ["clash", "broken", "nobody-has-it"])
def test_a_profile_that_is_refused_changes_nothing(tmp_path: Path, key: str) -> None:
    """The last good one stays; an agent that starts without one offers what is described."""

    async def act(node: Node) -> None:
        node.ask(key)
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        assert node.source.verdict.has_failed
        node.ask("two")
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.ask(key)
        await node.looks()
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        assert (node.source.verdict.applied, node.source.verdict.has_failed) == ("two", True)

    play(tmp_path, act)


def test_devices_that_vanish_and_fail_are_not_healthy(tmp_path: Path) -> None:
    """Shared or not; a resource that has none yet is offered under the name that its shares will have."""

    async def act(node: Node) -> None:
        for name in ("card0", "card1"):
            node.host.remove(f"/run/{name}")
        node.ask("renamed")
        await node.until({SHARED: (0, 0), PORT: (2, 2)})
        node.host.file("/run/card0")
        await node.until({SHARED: (4, 4), PORT: (2, 2)})
        node.host.remove("/run/card0")
        await node.until({SHARED: (0, 4), PORT: (2, 2)})

    play(tmp_path, act)


def test_profiles_that_cannot_be_read_hold_up_no_health(tmp_path: Path) -> None:
    """The last one counts; at the start nothing is offered for a while, then what is described."""

    async def act(node: Node) -> None:
        node.ask("two")
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.answers.clear()
        node.ask("three")
        await node.looks()
        node.host.remove("/run/card0")
        await node.looks()
        assert node.counts() == {CARD: (2, 4), PORT: (2, 2)}
        node.host.file("/run/card0")
        await node.agent_restarts()
        await node.looks()
        assert node.counts() == {}
        node.timing = node.timing._replace(slow=0.0)
        await node.agent_restarts()
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        assert "no answer for 0 s" in node.source.verdict.message
        node.answers.set()
        await node.until({CARD: (6, 6), PORT: (2, 2)})

    play(tmp_path, act, moment=0.01)


def test_who_is_expected_to_ask_is_waited_for(tmp_path: Path) -> None:
    """But not for ever: then the default profile counts, until somebody asks."""

    async def act(node: Node) -> None:
        node.source.expect()
        await node.looks()
        assert node.source.resources == {}
        node.ask("two")
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.source.expect()
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.timing = node.timing._replace(first_ask=0.0)
        await node.agent_restarts()
        node.source.expect()
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        node.ask("three")
        await node.until({CARD: (6, 6), PORT: (2, 2)})

    play(tmp_path, act)


def test_where_nothing_is_described_nobody_is_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is a profile read: the source of GPUs does so. What is described later is shared."""

    async def act(node: Node) -> None:
        asked = node.pods.asked
        node.ask("broken")
        node.source.configure(Description())
        await node.until({})
        assert (node.pods.asked, caplog.text) == (asked, "")
        node.ask("two")
        node.source.configure(parse_description(CONFIG, "config.yaml"))
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        node.ask("broken")
        await node.until({CARD: (4, 4), PORT: (2, 2)})
        assert node.source.verdict.has_failed
        node.source.configure(Description())
        await node.until({})
        assert node.source.verdict == Verdict()

    play(tmp_path, act)


def test_what_was_given_cannot_be_read(tmp_path: Path) -> None:
    """Nothing is offered until it can be, and the agent is not ready."""

    async def act(node: Node) -> None:
        (tmp_path / "state/allocations.json").mkdir(parents=True)
        await node.looks()
        assert node.source.resources == {}
        assert node.source.missing.startswith("cannot read what was given")
        (tmp_path / "state/allocations.json").rmdir()
        await node.until({CARD: (2, 2), PORT: (2, 2)})

    play(tmp_path, act)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["give", "give", "end", "ask", "ask", "look", "late", "restart", "away", "back", "settle"]),
        st.integers(0, 11),
    ),
    max_size=30,
)  # fmt: skip


@given(STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_device_is_ever_given_in_two_ways(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Whatever happens in whatever order; what containers have stays listed; in the end all is as it is to be."""
    keys = ["default", "renamed", "two", "three", "port"]

    async def act(node: Node) -> None:
        await node.until({CARD: (2, 2), PORT: (2, 2)})
        for what, number in steps:
            await step(node, what, number, keys)
            check(node, has_looked=what in ("look", "restart", "settle"))
        await node.pods.stop()
        await node.pods.start()
        for resource, name in tuple(node.held):
            node.ends(resource, name)
        node.boot = "boot-2"  # what was given in the last minute counts no more
        await node.agent_restarts()
        node.ask("renamed")
        await node.until({SHARED: (8, 8), PORT: (2, 2)})

    play(tmp_path_factory.mktemp("n"), act)


async def step(node: Node, what: str, number: int, keys: list[str]) -> None:
    """Let one thing happen."""
    free, held = node.free(), tuple(node.held)
    match what:
        case "give" if free:
            node.gives(*free[number % len(free)])
        case "late" if free:
            await node.looks(free[number % len(free)])
        case "end" if held:
            node.ends(*held[number % len(held)])
        case "ask":
            node.ask(keys[number % len(keys)])
        case "restart":
            await node.agent_restarts()
            await node.knows()
        case "away":
            await node.pods.stop()
        case "back":
            await node.pods.stop()
            await node.pods.start()
        case "settle":
            for _ in range(3):
                await asyncio.sleep(0.005)
                await node.looks()
        case _:
            await node.looks()


def check(node: Node, *, has_looked: bool) -> None:
    """Compare what pods have with each other, and with what is shown."""
    ways: dict[str, set[tuple[str, int]]] = {}
    for (resource, _), (unit, shares) in node.held.items():
        ways.setdefault(unit, set()).add((resource, shares))
    assert all(len(each) == 1 for each in ways.values()), ways
    for resource, name in node.held if has_looked else ():
        assert node.shown[resource][name].unit.is_healthy
