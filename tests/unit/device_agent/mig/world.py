"""A node whose MIG layout is changed, in the small: the container nvml, the kubelet, driver-builder, the agent.

Times are seconds; one clock stands for all. The agent is what :func:`device_agent.mig.decide.decide` decides, and
forgets all when it is killed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

from device_agent.errors import ConfigurationError
from device_agent.gpu_state.mig_change import (
    DONE,
    FAILED,
    MigChange,
    check_change,
    plain_change,
)
from device_agent.gpu_state.state import (
    OK,
    MigChanged,
    State,
)  # fmt: skip
from device_agent.mig.decide import decide
from device_agent.mig.parse import parse_layouts
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
from tests.unit.device_agent.mig.world_card import Card, Key, Refused

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


@dataclass
class World:
    """All of it. ``pods``: NAMESPACE/NAME -> its devices (resource, unit). ``guarded``: pods that a budget keeps.

    ``drains``: whether driver-builder does. ``unknown``: why podresources cannot be asked. ``crash_after``: calls to
    NVML after which its child dies. ``conflicts``: writes that are refused. ``renumbers``: whether cards behind one
    that is not listed move up, as NVML counts them.
    """

    cards: list[Card]
    settings: MigSettings = field(default_factory=MigSettings)
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
    renumbers: bool = True
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
        """Return the id of this boot."""
        return f"boot-{self.boots}"

    @property
    def now(self) -> float:
        """Return the time since the epoch."""
        return EPOCH + self.clock

    def touch(self) -> None:
        """Count a change of the Node."""
        self.version += 1

    def ask(self, key: str | None) -> None:
        """Set the label, or remove it."""
        self.labels.pop(MIG_CONFIG_LABEL, None)
        if key is not None:
            self.labels[MIG_CONFIG_LABEL] = key
        self.touch()

    @property
    def state(self) -> str | None:
        """Return what NVML says of the card."""
        return self.labels.get(MIG_STATE_LABEL)

    @property
    def record(self) -> Mapping[str, object]:
        """Return the agent's annotation."""
        return json.loads(self.annotations[MIG_ANNOTATION])  # type: ignore[no-any-return] # an object

    def node(self) -> NodeMig:
        """Return the Node as the agent reads it."""
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
        labels = [
            key for key, value in self.labels.items() if value == PAUSED_FOR_MIG_CHANGE or key == REBOOT_REQUIRED_LABEL
        ]
        lock = self.annotations.get(LOCK_ANNOTATION)
        ours = [LOCK_ANNOTATION] if lock is not None and parse_lock(lock).holder == "device-agent" else []
        return [*labels, *ours, *({DRAIN_REQUEST_ANNOTATION} & self.annotations.keys())]

    def lock_by(self, holder: str) -> None:
        """Have somebody lock the node."""
        self.annotations[LOCK_ANNOTATION] = render_lock(holder, self.boot_id, self.now)
        self.touch()

    def unlock(self, holder: str) -> None:
        """Have somebody release the lock, if it is theirs."""
        lock = self.annotations.get(LOCK_ANNOTATION)
        if lock is not None and parse_lock(lock).holder == holder:
            del self.annotations[LOCK_ANNOTATION]
            self.touch()

    # --- the agent ----------------------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Start it; what it knew is lost."""
        self.memory = Memory()
        is_under_way = '"before":null' not in self.annotations.get(MIG_ANNOTATION, '"before":null')
        self.inherited = self.clock if is_under_way else 0.0
        self.shown = Shown()
        self.users: UnitUsers | None = None
        self.said_unknown = ""
        self.registers = True
        self.cached: NodeMig | None = None

    def sight(self) -> Sight:
        """Return what the agent sees."""
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
            assert all(self.clock - one.at > 10 for one in self.queue), "two changes that may begin"
            self.changes.append(step.change)
            self.queue.append(check_change(json.loads(json.dumps(plain_change(step.change))), "change"))
        if step.looks:
            self.look()
        return step

    def check_asked(self, change: MigChange) -> None:
        """Expect that the Node says what was there, and that the lock is the agent's."""
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
        """Return what nvml says; None while it is away."""
        if not self.nvml_is_up:
            return None
        cards = tuple(card.state() for card in self.cards if not card.gone)
        if self.renumbers:
            cards = tuple(card._replace(index=index) for index, card in enumerate(cards))
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
        if card.gone or card.lost:
            raise Refused(FAILED, "Not Found")
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
        if card.lost or card.gone:
            return False
        if unit == card.uuid and card.mode == 1:
            return False
        self.pods[pod] = (resource, unit)
        return True

    def build(self) -> None:
        """Have driver-builder do its part of a drain."""
        request, lock = (self.annotations.get(key) for key in (DRAIN_REQUEST_ANNOTATION, LOCK_ANNOTATION))
        is_ours = (
            lock is not None and parse_lock(lock).holder == "device-agent" and not parse_lock(lock).is_expired(self.now)
        )
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

    @property
    def keys(self) -> list[Key]:
        """Return mode and instances of all cards."""
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
