"""Any history of a node whose layout is changed: what must never happen, and how it ends once it is left alone."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from device_agent.mig.parse import Layout
from device_agent.mig.values import MigSettings
from kube_api.names import GPU_DEPLOY_PREFIX
from tests.unit.device_agent.mig.world import LAYOUTS, World, read_layouts
from tests.unit.device_agent.mig.world_card import Card, Key, enabled

DEPLOY = f"{GPU_DEPLOY_PREFIX}dcgm-exporter"
KEYS = ("two-sevens", "two-balanced", "two-disabled", "two-too-much", "first", "none-such")
OTHER = "driverwright/edu"


def asked_of(index: int) -> list[tuple[int, dict[str, int]]]:
    """Return what the keys ask of a card: mode, and devices by profile."""
    found: list[Layout] = []
    for key in KEYS:
        entries = read_layouts(LAYOUTS, key).entries
        found += [one.layout for one in entries if one.indexes is None or index in one.indexes]
    return [(int(one.enabled), {str(name): number for name, number in one.devices.items()}) for one in found]


ASKED = {index: asked_of(index) for index in range(3)}


class Histories(RuleBasedStateMachine):
    """Card 0 has instances, card 1 none and may need a boot, card 2 is in no layout that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        cards = [
            enabled(0, ("1g.5gb", 0, (1,)), ("1g.5gb", 1, (1,)), ("3g.20gb", 4, (3,))),
            Card(1),
            enabled(2, ("7g.40gb", 0, (7,))),
        ]
        self.world = World(cards=cards, settings=MigSettings(drain=True, deadline=60), renumbers=False)
        self.world.labels[DEPLOY] = "true"
        self.good: dict[int, list[Key]] = {card.index: [card.key] for card in cards}
        self.pods = 0

    # --- what happens -------------------------------------------------------------------------------------------------

    @initialize(key=st.sampled_from(KEYS), pods=st.booleans())
    def begin(self, key: str, pods: bool) -> None:
        """Ask for a layout, on a node where pods may run."""
        if pods:
            self.world.pods["a/on-first"] = ("nvidia.com/mig-1g.5gb", "MIG-0-1g.5gb-0-0")
            self.world.pods["a/on-second"] = ("nvidia.com/gpu", "GPU-1")
            self.world.pods["a/on-last"] = ("nvidia.com/mig-7g.40gb", "MIG-2-7g.40gb-0-0")
        self.world.ask(key)

    @rule(number=st.integers(1, 4))
    def work(self, number: int) -> None:
        """Let everybody work."""
        for _ in range(number):
            self.world.round()
            self.never_unwritten()

    @rule(number=st.integers(5, 20))
    def work_longer(self, number: int) -> None:
        """Let everybody work."""
        self.work(number)

    @rule(number=st.integers(1, 3))
    def decides(self, number: int) -> None:
        """Have the agent decide, and nobody else do anything yet."""
        for _ in range(number):
            self.world.step()

    @rule(key=st.sampled_from([*KEYS, None, "two-balanced", "two-sevens"]))
    def label(self, key: str | None) -> None:
        """Change the label."""
        self.world.ask(key)

    @rule(unit=st.integers(0, 40))
    def pod(self, unit: int) -> None:
        """Start a pod on any device."""
        units = [one for card in self.world.cards for one in card.units()]
        self.pods += 1
        self.world.run_pod(f"a/pod-{self.pods}", units[unit % len(units)])

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 40), kept=st.booleans())
    def pod_ends(self, which: int, kept: bool) -> None:
        """Have a pod end, or a budget keep it."""
        name = sorted(self.world.pods)[which % len(self.world.pods)]
        if kept:
            self.world.guarded.add(name)
        else:
            del self.world.pods[name]

    @rule(whole_pod=st.booleans())
    def kill_agent(self, whole_pod: bool) -> None:
        """Kill the agent; what it has asked for is done all the same, or not."""
        if whole_pod:
            self.world.queue.clear()
            self.world.changed = ()
        self.world.start_agent()

    @rule(calls=st.integers(0, 12))
    def kill_nvml_soon(self, calls: int) -> None:
        """Have nvml die in the middle of a change."""
        self.world.crash_after = calls

    @rule(what=st.sampled_from(["nvml", "api", "kubelet", "driver-builder", "conflict", "drain"]), is_on=st.booleans())
    def outage(self, what: str, is_on: bool) -> None:
        """Have something away, or back."""
        world = self.world
        match what:
            case "nvml":
                world.nvml_is_up = is_on
            case "api":
                world.has_api = is_on
            case "kubelet":
                world.unknown = "" if is_on else "the kubelet is away"
            case "driver-builder":
                world.drains = is_on
            case "conflict":
                world.conflicts = 1 + is_on
            case _:
                world.settings = MigSettings(drain=is_on, deadline=60)

    @rule(releases=st.booleans())
    def lock(self, releases: bool) -> None:
        """Have somebody else lock the node, or release it."""
        if releases:
            self.world.unlock(OTHER)
        elif "driverwright.io/lock" not in self.world.annotations:
            self.world.lock_by(OTHER)

    @rule(card=st.integers(0, 1), fails=st.lists(st.sampled_from(["create", "destroy", "mode"]), max_size=4))
    def fail(self, card: int, fails: list[str]) -> None:
        """Have a card fail."""
        self.world.cards[card].fails = list(fails)

    @rule(card=st.integers(0, 1), busy=st.booleans(), needs=st.booleans())
    def habits(self, card: int, busy: bool, needs: bool) -> None:
        """Have something that is no pod use a card, and have its mode change with a boot alone."""
        self.world.cards[card].busy = busy
        self.world.cards[card].needs_boot = needs

    @rule(card=st.integers(0, 1), is_listed=st.booleans())
    def lose(self, card: int, is_listed: bool) -> None:
        """Have a card fall off the bus, or come back."""
        one = self.world.cards[card]
        if one.lost or one.gone:
            self.come_back(one)
        else:
            one.lose(is_listed=is_listed)

    def come_back(self, card: Card) -> None:
        """Have a card back as from a reset."""
        card.come_back()
        self.good[card.index] += [(0, ()), (1, ())]

    @rule(seconds=st.sampled_from([5.0, 60.0, 700.0]), keeps=st.booleans())
    def boot(self, seconds: float, keeps: bool) -> None:
        """Boot the node; a Hopper loses its mode."""
        for card in self.world.cards[:2]:
            card.keeps_mode = keeps
        self.world.boot(seconds)
        for card in self.world.cards:
            self.good[card.index] += [(0, ()), (1, ())]

    @rule(seconds=st.sampled_from([30.0, 700.0]))
    def time(self, seconds: float) -> None:
        """Let time pass while nobody works."""
        self.world.clock += seconds

    # --- what must never happen (the world itself asserts more) -------------------------------------------------------

    def is_good(self, card: Card) -> bool:
        """Return whether a card is as it was, or as some key asks."""
        mode, instances = card.key
        there: dict[str, int] = {}
        for profile, _, _ in instances:
            there[profile] = there.get(profile, 0) + 1
        return card.key in self.good[card.index] or (mode, there) in ASKED[card.index]

    @invariant()
    def never_unwritten(self) -> None:
        """A card that is neither as before nor as asked is in the record with what was there."""
        before = self.world.record["before"] if "driverwright.io/mig" in self.world.annotations else None
        known = before if isinstance(before, dict) else {}
        wrong = [card.uuid for card in self.world.cards if not (card.gone or self.is_good(card))]
        assert set(wrong) <= known.keys()

    @invariant()
    def never_touches_others(self) -> None:
        """No change is asked of a card that no layout is for, and no pod of it is evicted."""
        assert all(change.card != "GPU-2" for change in self.world.changes)
        assert "a/on-last" not in self.world.evicted

    # --- how it ends --------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Leave it alone with all that works: it ends in one of two layouts, and all is given back."""
        world = self.world
        world.nvml_is_up = world.has_api = world.drains = True
        world.unknown, world.conflicts, world.crash_after = "", 0, None
        world.settings = MigSettings(drain=True, deadline=60)
        world.guarded.clear()
        world.unlock(OTHER)
        for card in world.cards:
            card.fails, card.busy = [], False
            if card.lost or card.gone:
                self.come_back(card)
        self.settle()
        world.ask("two-balanced")
        self.settle()

    def settle(self) -> None:
        """Let everybody work for a while, and expect an end."""
        world = self.world
        for _ in range(160):
            world.round(5.0)
            if world.state == "rebooting" and any(card.mode != card.pending for card in world.cards):
                self.boot(60.0, keeps=True)
        key = world.labels.get("nvidia.com/mig.config")
        assert world.leftovers == []
        assert world.labels[DEPLOY] == "true"
        assert all(map(self.is_good, world.cards))
        if key is None:
            assert "driverwright.io/mig" not in world.annotations
        else:
            assert world.state == ("failed" if key in ("two-too-much", "none-such") else "success")
            self.expect_layout(key)
        step = world.step()
        assert (step.write, step.change, step.held) == (None, None, frozenset())

    def expect_layout(self, key: str) -> None:
        """Compare each card with what the key asks of it."""
        if self.world.state != "success":
            return
        for entry in read_layouts(LAYOUTS, key).entries:
            for index in entry.indexes or ():
                mode, instances = self.world.cards[index].key
                there = sorted(profile for profile, _, _ in instances)
                wanted = sorted(str(name) for name, number in entry.layout.devices.items() for _ in range(number))
                assert (mode, there) == (int(entry.layout.enabled), wanted)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
