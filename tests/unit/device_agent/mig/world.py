"""A node whose MIG layout is changed, in the small: cards, the container nvml, the kubelet, driver-builder, the agent.

Times are seconds; one clock stands for all. The agent is what :func:`device_agent.mig.decide.decide` decides, and forgets
all when it is killed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import count

from device_agent.errors import ConfigurationError
from device_agent.gpu_state.mig_change import (
    DONE,
    FAILED,
    IN_USE,
    RESET_REQUIRED,
    MigChange,
    check_change,
    plain_change,
)
from device_agent.gpu_state.state import (
    OK,
    CardState,
    GpuInstanceState,
    InstanceState,
    MigChanged,
    MigProfileState,
    State,
)  # fmt: skip
from device_agent.mig.decide import decide
from device_agent.mig.model import Model
from device_agent.mig.parse import parse_layouts
from device_agent.mig.tables import MODELS
from device_agent.mig.values import (
    Holding,
    Layouts,
    Memory,
    MigSettings,
    NodeMig,
    NodeWrite,
    Shown,
    Sight,
    Step,
    UnitUsers,
)  # fmt: skip
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_REQUIRED_LABEL,
)  # fmt: skip
from kube_api.node_lock import parse_lock, render_lock

A100 = MODELS["A100-40"]
EPOCH = 1_800_000_000.0
LAYOUTS = """\
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  sevens: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  two-and-three: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 2, 1g.5gb: 3}}]
  balanced: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}]
  parts: [{devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 3, 2c.3g.20gb: 1, 1g.5gb: 1}}]
  too-much: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}]
  first: [{devices: [0], mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  two-sevens: [{devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  two-balanced: [{devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}]
  two-disabled: [{devices: [0, 1], mig-enabled: false}]
  two-too-much: [{devices: [0, 1], mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}]
"""
Placing = tuple[str, int, tuple[int, ...]]
Key = tuple[int, tuple[Placing, ...]]
"""Mode and instances of a card: profile, start, slices of compute instances."""


class Refused(Exception):
    """NVML says no; what it is, is the first argument."""


@dataclass
class Card:
    """A card, with what NVML does. ``needs_boot``: it switches its mode with a boot. ``fails``: the next calls that fail.

    ``keeps_mode``: over a boot; a Hopper does not. ``busy``: a process that is no pod's has it open.
    """

    index: int
    model: Model = A100
    mode: int = 0
    pending: int = 0
    instances: dict[int, Placing] = field(default_factory=dict)
    needs_boot: bool = False
    keeps_mode: bool = True
    busy: bool = False
    fails: list[str] = field(default_factory=list)
    lost: str = ""
    has_table: bool = True
    ids: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def uuid(self) -> str:
        return f"GPU-{self.index}"

    @property
    def key(self) -> Key:
        return self.mode, tuple(sorted(self.instances.values(), key=lambda one: one[1]))

    def _call(self, name: str) -> None:
        if self.fails and self.fails[0] in (name, "any"):
            self.fails.pop(0)
            raise Refused(FAILED, f"{name}: Unknown Error")

    def destroy(self, gi: int) -> None:
        self._call("destroy")
        del self.instances[gi]

    def switch(self, mode: int) -> None:
        if mode == self.mode == self.pending:
            return
        self._call("mode")
        if self.busy:
            raise Refused(IN_USE, "In use by another client")
        if self.instances:
            raise Refused(FAILED, "there are instances")
        self.pending = mode
        if mode != self.mode and self.needs_boot:
            raise Refused(RESET_REQUIRED, "the mode changes with a reset")
        self.mode = mode

    def create(self, profile: str, start: int, compute: tuple[int, ...]) -> None:
        self._call("create")
        found = self.model.profile(profile)
        assert found is not None
        slices = set(range(start, start + found.size))
        assert self.mode == 1
        assert start in found.starts
        assert sum(compute) <= found.compute
        for name, begin, _ in self.instances.values():
            other = self.model.profile(name)
            assert other is not None
            assert not slices & set(range(begin, begin + other.size)), "NVML has no room there"
        self.instances[next(self.ids)] = (profile, start, compute)

    def boot(self) -> None:
        self.instances.clear()
        self.mode = self.pending = self.pending if self.keeps_mode else 0
        self.busy = False

    def units(self) -> dict[str, int | None]:
        """Return UUID -> gi of what can be given."""
        return {self.uuid: None, **{uuid: gi for uuid, gi, _, _ in self.devices()}}

    def devices(self) -> list[tuple[str, int, int, int]]:
        return [
            (f"MIG-{self.index}-{profile}-{start}-{ci}", gi, ci, size)
            for gi, (profile, start, compute) in sorted(self.instances.items())
            for ci, size in enumerate(compute)
        ]

    def state(self) -> CardState:
        if self.lost:
            return CardState(self.index, self.uuid, why=self.lost, error=15)
        profiles = [self.model.profile(name) for name, _, _ in self.instances.values()]
        named = dict(zip(self.instances, profiles, strict=True))
        found = []
        for uuid, gi, ci, size in self.devices():
            profile = named[gi]
            assert profile is not None
            name = profile.name if size == profile.compute else f"{size}c.{profile.name}"
            found.append(InstanceState(uuid, name, gi, ci, 1))
        return CardState(
            self.index, self.uuid, "NVIDIA A100-SXM4-40GB" if self.has_table else "NVIDIA X1", minor=self.index,
            mig_mode=self.mode, mig_pending=self.pending, instances=tuple(found), pci_id="0x20b010de",
            gpu_instances=tuple(
                GpuInstanceState(gi, profile, start, self.model.profile(profile).size, compute)  # type: ignore[union-attr] # it is there
                for gi, (profile, start, compute) in sorted(self.instances.items())
            ),
            mig_profiles=tuple(
                MigProfileState(one.name, one.starts, one.size, one.most) for one in self.model.profiles
            ) if self.mode else (),
        )  # fmt: skip


@dataclass
class World:
    """All of it. ``pods``: NAMESPACE/NAME -> its devices (resource, unit). ``guarded``: pods that a budget keeps.

    ``drains``: whether driver-builder does. ``unknown``: why podresources cannot be asked. ``crash_after``: calls to
    NVML after which its child dies. ``conflicts``: writes that are refused.
    """

    cards: list[Card]
    settings: MigSettings = MigSettings()
    file: str = LAYOUTS
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    version: int = 1
    has_api: bool = True
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    drains: bool = True
    unknown: str = ""
    clock: float = 100.0
    boots: int = 1
    crash_after: int | None = None
    conflicts: int = 0
    states: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    changes: list[MigChange] = field(default_factory=list)
    destroyed: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    changed: tuple[MigChanged, ...] = ()
    queue: list[MigChange] = field(default_factory=list)
    nvml_is_up: bool = True
    read_at: float = 100.0
    drain_since: float | None = None

    def __post_init__(self) -> None:
        self.start_agent()

    # --- the Node -----------------------------------------------------------------------------------------------------

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    @property
    def now(self) -> float:
        return EPOCH + self.clock

    def touch(self) -> None:
        self.version += 1

    def ask(self, key: str | None) -> None:
        """Set the label, or remove it."""
        self.labels.pop(MIG_CONFIG_LABEL, None)
        if key is not None:
            self.labels[MIG_CONFIG_LABEL] = key
        self.touch()

    @property
    def state(self) -> str | None:
        return self.labels.get(MIG_STATE_LABEL)

    @property
    def record(self) -> Mapping[str, object]:
        return json.loads(self.annotations[MIG_ANNOTATION])  # type: ignore[no-any-return] # an object

    def node(self) -> NodeMig:
        get = self.annotations.get
        return NodeMig(
            asked=self.labels.get(MIG_CONFIG_LABEL), state=self.state, record=get(MIG_ANNOTATION),
            lock=get(LOCK_ANNOTATION), drain_request=get(DRAIN_REQUEST_ANNOTATION),
            drain_state=get(DRAIN_STATE_ANNOTATION), reboot_required=self.labels.get(REBOOT_REQUIRED_LABEL),
            deploy={key: value for key, value in self.labels.items() if key.startswith(GPU_DEPLOY_PREFIX)},
            resource_version=str(self.version), uid="u",
        )  # fmt: skip

    def write(self, write: NodeWrite) -> bool:
        """Patch the Node; False for a conflict, or without an API server."""
        if not self.has_api or write.resource_version != str(self.version):
            return False
        if self.conflicts:
            self.conflicts -= 1
            self.touch()
            return False
        for changes, there in ((write.labels, self.labels), (write.annotations, self.annotations)):
            for key, value in changes.items():
                if value is None:
                    there.pop(key, None)
                else:
                    there[key] = value
        self.touch()
        if write.event:
            self.events.append(write.event)
        if (state := self.state) and self.states[-1:] != [state]:
            self.states.append(state)
        return True

    @property
    def leftovers(self) -> list[str]:
        """Return what a change has to have given back."""
        labels = [key for key, value in self.labels.items() if value == PAUSED_FOR_MIG_CHANGE or key == REBOOT_REQUIRED_LABEL]
        lock = self.annotations.get(LOCK_ANNOTATION)
        ours = [LOCK_ANNOTATION] if lock is not None and parse_lock(lock).holder == "device-agent" else []
        return [*labels, *ours, *({DRAIN_REQUEST_ANNOTATION} & self.annotations.keys())]

    def lock_by(self, holder: str) -> None:
        self.annotations[LOCK_ANNOTATION] = render_lock(holder, self.boot_id, self.now)
        self.touch()

    def unlock(self, holder: str) -> None:
        lock = self.annotations.get(LOCK_ANNOTATION)
        if lock is not None and parse_lock(lock).holder == holder:
            del self.annotations[LOCK_ANNOTATION]
            self.touch()

    # --- the agent ----------------------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Start it; what it knew is lost."""
        self.memory = Memory()
        self.inherited = self.clock if self.annotations.get(MIG_ANNOTATION, '"before":null').find('"before":null') < 0 else 0.0
        self.shown = Shown()
        self.users: UnitUsers | None = None
        self.said_unknown = ""
        self.registers = True
        self.cached: NodeMig | None = None

    def sight(self) -> Sight:
        if self.has_api:
            self.cached = self.node()
        node = self.cached
        key = node.asked if node is not None else None
        return Sight(
            node=node, layouts=read_layouts(self.file, key) if key else None, state=self.nvml_state(), users=self.users,
            unknown=self.said_unknown, now=self.now, clock=self.clock, boot_id=self.boot_id, inherited=self.inherited,
            settings=self.settings, shown=self.shown, memory=self.memory,
        )  # fmt: skip

    def step(self) -> Step:
        """Have the agent do one step."""
        sight = self.sight()
        step = decide(sight)
        assert step == decide(sight)
        assert not (step.write and step.change)
        self.memory = step.memory
        self.registers = step.registers
        if step.held != self.shown.cards:
            self.shown = Shown(cards=step.held, since=self.clock)
        if step.write is not None:
            self.write(step.write)
        if step.change is not None:
            self.check_asked(step.change)
            assert not self.queue, "two changes at once"
            self.changes.append(step.change)
            self.queue.append(check_change(json.loads(json.dumps(plain_change(step.change))), "change"))
        if step.looks:
            self.look()
        return step

    def check_asked(self, change: MigChange) -> None:
        """Nothing is destroyed of which the Node does not say what it was, or with a user, or in somebody else's lock."""
        before = self.record["before"]
        assert isinstance(before, dict)
        assert change.card in before
        lock = self.annotations.get(LOCK_ANNOTATION)
        assert lock is not None
        assert parse_lock(lock).holder == "device-agent"

    def look(self) -> None:
        """Ask podresources."""
        self.said_unknown = self.unknown
        if self.unknown:
            self.users = None
            return
        units: dict[str, set[Holding]] = {}
        for pod, (resource, unit) in self.pods.items():
            units.setdefault(unit, set()).add(Holding(pod, resource))
        self.users = UnitUsers(at=self.clock, units={unit: frozenset(who) for unit, who in units.items()})

    # --- the container nvml -------------------------------------------------------------------------------------------

    def nvml_state(self) -> State | None:
        if not self.nvml_is_up:
            return None
        cards = tuple(card.state() for card in self.cards)
        return State("s", self.boot_id, "l", OK, cards=cards, read_at=self.read_at, mig_changes=self.changed)

    def work(self) -> None:
        """Do what was asked, then read the cards."""
        while self.queue:
            change = self.queue.pop(0)
            outcome, why = DONE, ""
            try:
                self._apply(change)
            except Refused as refused:
                outcome, why = refused.args
            except _Killed:
                self.queue.clear()
                self.changed = ()
                self.read_at = self.clock
                return
            answer = MigChanged(change.id, change.card, outcome, why, self.clock)
            self.changed = (*(one for one in self.changed if one.card != change.card), answer)
        self.read_at = self.clock

    def _apply(self, change: MigChange) -> None:
        card = next(one for one in self.cards if one.uuid == change.card)
        if self.clock - change.at > 10:
            raise Refused(FAILED, "it is too old")
        if set(change.seen) != {(gi, name, start) for gi, (name, start, _) in card.instances.items()}:
            raise Refused(FAILED, "it was meant for other instances")
        for gi in change.destroy:
            self._tick()
            going = {uuid for uuid, of, _, _ in card.devices() if of == gi}
            users = [pod for pod, (_, unit) in self.pods.items() if unit in going]
            assert not users, f"{users} lose what they use"
            card.destroy(gi)
            self.destroyed += going
        self._tick()
        if change.mode != card.mode:
            users = [pod for pod, (_, unit) in self.pods.items() if unit in card.units()]
            assert not users, f"{users} lose their card"
        card.switch(change.mode)
        for new in change.create:
            self._tick()
            card.create(new.profile, new.start, new.compute)

    def _tick(self) -> None:
        if self.crash_after is not None:
            if self.crash_after == 0:
                self.crash_after = None
                raise _Killed
            self.crash_after -= 1

    # --- the kubelet, driver-builder, time ----------------------------------------------------------------------------

    def run_pod(self, pod: str, unit: str, resource: str = "nvidia.com/gpu") -> bool:
        """Start a pod with a unit, as the kubelet would: only with one that is healthy and free."""
        card = next((one for one in self.cards if unit in one.units()), None)
        is_tainted = self.drain_since is not None
        is_taken = any(one == unit for _, one in self.pods.values())
        if card is None or is_taken or is_tainted or card.uuid in self.shown.cards or not self.registers:
            return False
        if unit == card.uuid and card.mode == 1:
            return False
        self.pods[pod] = (resource, unit)
        return True

    def build(self) -> None:
        """Have driver-builder do its part of a drain."""
        request, lock = (self.annotations.get(key) for key in (DRAIN_REQUEST_ANNOTATION, LOCK_ANNOTATION))
        is_ours = lock is not None and parse_lock(lock).holder == "device-agent" and not parse_lock(lock).is_expired(self.now)
        if not self.drains or request is None or not is_ours:
            self.drain_since = None
            if self.annotations.pop(DRAIN_STATE_ANNOTATION, None) is not None:
                self.touch()
            return
        asked = json.loads(request)
        assert asked.keys() == {"pods", "resources", "deadline"}
        assert asked["pods"]
        self.drain_since = self.clock if self.drain_since is None else self.drain_since
        for pod in asked["pods"]:
            if pod in self.pods and pod not in self.guarded:
                assert self.pods[pod][0] in asked["resources"]
                self.evicted.append(pod)
                del self.pods[pod]
        left = [pod for pod in asked["pods"] if pod in self.pods]
        is_late = self.clock > self.drain_since + self.settings.deadline
        answer = {
            "state": "failed" if left and is_late else "draining" if left else "drained",
            "message": f"{left[0]} is kept by a budget" if left else "",
            "request": sha256(request.encode()).hexdigest()[:16],
        }
        text = json.dumps(answer)
        if self.annotations.get(DRAIN_STATE_ANNOTATION) != text:
            self.annotations[DRAIN_STATE_ANNOTATION] = text
            self.touch()

    def boot(self, seconds: float = 60.0) -> None:
        """Boot the node; pods end with it."""
        self.boots += 1
        self.clock += seconds
        self.pods.clear()
        self.queue.clear()
        self.changed = ()
        for card in self.cards:
            card.boot()
        self.read_at = self.clock
        self.start_agent()

    def round(self, seconds: float = 2.0) -> Step:
        """Let everybody work once."""
        step = self.step()
        self.work()
        self.build()
        self.clock += seconds
        return step

    def rounds(self, most: int = 200, seconds: float = 2.0) -> list[Step]:
        """Let everybody work until nothing is to do any more."""
        steps = []
        for _ in range(most):
            steps.append(self.round(seconds))
            last = steps[-1]
            if last.write is None and last.change is None and not last.held and not self.queue and not self.memory.rest:
                if last.why == "" or len(steps) > 20:
                    break
        return steps

    @property
    def keys(self) -> list[Key]:
        return [card.key for card in self.cards]

    def devices(self, resource: str) -> int:
        """Count the MIG devices of a profile."""
        found = (instance.profile for card in self.cards for instance in card.state().instances)
        return sum(name == resource for name in found)


@cache
def read_layouts(text: str, key: str) -> Layouts:
    """Read a key of the file."""
    try:
        return Layouts(key=key, entries=parse_layouts(text, "config.yaml", key))
    except ConfigurationError as error:
        return Layouts(key=key, error=str(error))


class _Killed(Exception):
    """The child was killed."""


def a100s(number: int = 4, **fields: object) -> World:
    """Make a node of A100 with 40 GB."""
    return World(cards=[Card(index) for index in range(number)], **fields)  # type: ignore[arg-type] # fields of it


def enabled(index: int, *instances: Placing) -> Card:
    """Make a card in MIG mode."""
    card = Card(index, mode=1, pending=1)
    for one in instances:
        card.create(*one)
    return card


