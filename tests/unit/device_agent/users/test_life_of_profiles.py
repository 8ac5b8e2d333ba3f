"""Whatever happens on a node, no card is given in two ways at once, and what containers have stays theirs.

A played kubelet gives devices to pods, shows and records them late, forgets and restarts; a played agent is what the
real one does between two looks: it reads, decides, and gives what it lists.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from device_agent.allocations.given import Allocation, Given, dump_given, parse_given, with_new
from device_agent.allocations.recent import Recent, recent_of, started, still_recent
from device_agent.profiles.offered import Offered
from device_agent.profiles.transition import Listing, held_before, transition, with_late
from device_agent.users.checkpoint import Entry, of_pods
from device_agent.users.in_use import Seen, held_in, in_use

UNIT = "GPU-0"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
WAYS = (None, (GPU, 1), (GPU, 2), (GPU, 3), (SHARED, 2))
"""In which a profile may offer the card; with one card most happens to it."""
SETTLED = 60.0
MINUTE = 60.0
"""Within which the kubelet says somewhere what a pod has."""


@dataclass(kw_only=True)
class Pod:
    """A pod that runs with one device. What the kubelet says of it comes some time after it has the device."""

    uid: str
    resource: str
    id: str
    unit: str
    shares: int
    is_init: bool
    since: float
    is_shown: bool = False
    is_recorded: bool = False
    has_cgroup: bool = False

    def appear(self) -> None:
        """Have everything said of it."""
        self.is_shown = self.is_recorded = self.has_cgroup = True


class Node(RuleBasedStateMachine):
    """A node with cards, a kubelet and an agent."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.boot = 1000.0, 1
        self.pods: list[Pod] = []
        self.made = 0
        self.checkpoint: list[Entry] = []
        self.is_api_there = True
        self.shown_list: Listing = {}
        self.wanted: list[Offered] = []
        self.given: Given = {}
        self.file = dump_given({}, "")
        self.recent: Recent = {}
        self.seen: Seen | None = None
        self.listing: Listing = {}
        self.next: Listing | None = None
        self.has_looked = False

    @initialize(way=st.sampled_from(WAYS[1:]))
    def node_starts(self, way: tuple[str, int]) -> None:
        """Offer the card."""
        self.profile_changes(way)
        self.agent_looks()

    # --- the kubelet --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_api_there)
    @rule(data=st.data(), is_init=st.booleans(), is_answered=st.sampled_from([True, True, True, False]))
    def pod_starts(self, data: Any, is_init: bool, is_answered: bool) -> None:
        """Give a pod a device that is healthy and free for all that the kubelet knows; the agent may refuse."""
        taken = {(pod.resource, pod.id) for pod in self.pods}
        free = sorted(
            (resource, one.id)
            for resource, devices in self.shown_list.items()
            for one in devices
            if not one.why and (resource, one.id) not in taken
        )
        if not free:
            return
        resource, name = data.draw(st.sampled_from(free))
        self._write_checkpoint()
        device = next((one for one in self.listing.get(resource, ()) if one.id == name and not one.why), None)
        if device is None or not self.has_looked:
            return
        self.recent = started(self.recent, resource, {name: device.shares}, self.now)
        allocation = Allocation(identity=("/dev/x",), shares=device.shares, at=self.now)
        self.given = with_new(self.given, resource, {name: allocation})
        self.file = dump_given(self.given, f"boot {self.boot}")
        if is_answered:  # else it is killed before it answers, and the kubelet gives up
            self.made += 1
            pod = Pod(uid=f"u{self.made}", resource=resource, id=name, unit=device.unit, shares=device.shares,
                      is_init=is_init, since=self.now)  # fmt: skip
            self.pods.append(pod)
        else:
            self.agent_restarts()

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_ends(self, data: Any) -> None:
        """End a pod: its entry stays in the checkpoint."""
        self.pods.remove(data.draw(st.sampled_from(self.pods)))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), what=st.sampled_from(["all", "is_shown", "is_recorded", "has_cgroup"]))
    def kubelet_goes_on(self, data: Any, what: str) -> None:
        """Let one more place, or all, say what a pod has."""
        pod = data.draw(st.sampled_from(self.pods))
        pod.appear() if what == "all" else setattr(pod, what, True)
        if pod.is_recorded:
            self._write_checkpoint()

    def kubelet_restarts(self) -> None:
        """Forget all lists, and all pods until the API server is there: the checkpoint stays."""
        self._write_checkpoint()
        self.shown_list, self.is_api_there = {}, False

    # --- the node -----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0, 30.0, 59.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        """Go on. A pod that has a device is seen by somebody within a minute."""
        self.now += seconds
        for pod in self.pods:
            if self.now - pod.since >= MINUTE:
                pod.appear()
                self.is_api_there = True
                self._write_checkpoint()

    def node_boots(self) -> None:
        """Boot: pods that are recorded come back with what they had, the others were never there."""
        self.now, self.boot = 1.0, self.boot + 1
        self.pods = [pod for pod in self.pods if pod.is_recorded]
        for pod in self.pods:
            pod.since, pod.is_shown, pod.has_cgroup = self.now, False, False
        self.kubelet_restarts()
        self.agent_restarts()

    @rule(what=st.sampled_from(["agent", "agent", "kubelet", "api", "api", "boot"]))
    def something_restarts(self, what: str) -> None:
        """Restart a part, or reach the API server again."""
        match what:
            case "agent":
                self.agent_restarts()
            case "kubelet":
                self.kubelet_restarts()
            case "api":
                self.is_api_there = True
            case _:
                self.node_boots()

    # --- the agent ----------------------------------------------------------------------------------------------------

    @rule(way=st.sampled_from(WAYS))
    def profile_changes(self, way: tuple[str, int] | None) -> None:
        """Want something else from the next look on."""
        self.wanted = [Offered(resource=way[0], unit=UNIT, shares=way[1])] if way else []

    @rule(is_missing=st.sampled_from(["", "", "", "shown", "recorded"]))
    def agent_asks(self, is_missing: str) -> None:
        """Ask who has devices; the answer is used later, or another one before."""
        pods = {pod.uid for pod in self.pods if pod.has_cgroup} if self.now >= SETTLED else None
        shown = {(pod.resource, pod.id) for pod in self.pods if pod.is_shown and not pod.is_init}
        self.seen = Seen(
            asked_at=self.now,
            shown=None if is_missing == "shown" else frozenset(shown if self.is_api_there else ()),
            recorded=None if is_missing == "recorded" else of_pods(self.checkpoint, pods),
        )

    @rule()
    def agent_decides(self) -> None:
        """Decide what is listed next; devices are given as before until that counts."""
        found = None
        if self.seen is not None:
            self.recent = still_recent(self.recent, self.seen.shown or (), self.seen.asked_at)
            found = in_use(self.seen, self.given, self.recent)
        self.next = transition(self.wanted, self.listing, found, known={UNIT})

    @rule(is_missing=st.sampled_from(["", "", "shown"]))
    def agent_asks_and_decides(self, is_missing: str) -> None:
        """Decide on what is true now."""
        self.agent_asks(is_missing)
        self.agent_decides()

    @rule(is_sent=st.sampled_from([True, True, False]))
    def agent_lists(self, is_sent: bool) -> None:
        """Let it count; the kubelet has it at once, or still an older list."""
        if self.next is not None:
            self.listing, self.next, self.has_looked = with_late(self.next, self.listing, self.recent), None, True
        if is_sent and self.has_looked:
            self.shown_list = self.listing

    @rule()
    def agent_looks(self) -> None:
        """Decide on what is true now, as far as the kubelet says it, as often as it needs."""
        self.agent_asks("")
        for _ in range(2):
            self.agent_decides()
            self.agent_lists(is_sent=True)

    def agent_restarts(self) -> None:
        """Be killed at any moment: what it knows is what its file has."""
        self.given = parse_given(self.file, f"boot {self.boot}")
        self.recent, self.seen = recent_of(self.given), None
        self.listing, self.next, self.has_looked = held_before(held_in(self.given)), None, False

    # --- what is always so --------------------------------------------------------------------------------------------

    @invariant()
    def no_card_is_given_in_two_ways(self) -> None:
        """Under one name, as so many shares."""
        ways = defaultdict(set)
        for pod in self.pods:
            ways[pod.unit].add((pod.resource, pod.shares))
        assert all(len(of_unit) == 1 for of_unit in ways.values()), ways

    @invariant()
    def what_pods_have_stays_listed(self) -> None:
        """And healthy, as it was given."""
        listed = {
            (name, one.id, one.shares) for name, devices in self.listing.items() for one in devices if not one.why
        }
        assert {(pod.resource, pod.id, pod.shares) for pod in self.pods} <= listed

    @invariant()
    def each_id_is_listed_once(self) -> None:
        """In each resource."""
        for devices in self.listing.values():
            assert len({one.id for one in devices}) == len(devices)

    def teardown(self) -> None:
        """When all pods have ended, and that is known, exactly what is wanted is listed."""
        self.pods = []
        self.time_passes(2 * MINUTE)
        self.agent_looks()
        assert self.listing == transition(self.wanted, {}, frozenset())
        assert {(name, one.unit, one.shares, one.why) for name, each in self.listing.items() for one in each} == {
            (one.resource, one.unit, one.shares, "") for one in self.wanted
        }

    def _write_checkpoint(self) -> None:
        self.checkpoint = [Entry(pod.uid, pod.resource, pod.id) for pod in self.pods if pod.is_recorded]


Node.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestNode = Node.TestCase
