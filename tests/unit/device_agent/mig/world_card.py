"""A card of the small world of MIG changes, with the rules that NVML has."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from device_agent.gpu_state.mig_change import FAILED, IN_USE, RESET_REQUIRED
from device_agent.gpu_state.state import CardState, GpuInstanceState, InstanceState, MigProfileState
from device_agent.mig.model import Model
from device_agent.mig.tables import MODELS

A100 = MODELS["A100-40"]
Placing = tuple[str, int, tuple[int, ...]]
Key = tuple[int, tuple[Placing, ...]]
"""Mode and instances of a card: profile, start, slices of compute instances."""


class Refused(Exception):
    """NVML says no; what it is, is the first argument."""


@dataclass
class Card:
    """A card. ``needs_boot``: it switches its mode with a boot. ``fails``: the next calls that fail.

    ``keeps_mode``: over a boot; a Hopper does not. ``busy``: a process that is no pod's has it open.
    ``lost``: why NVML cannot read it. ``gone``: NVML does not list it.
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
    gone: bool = False
    has_table: bool = True
    ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def uuid(self) -> str:
        """Return the card's UUID."""
        return f"GPU-{self.index}"

    @property
    def key(self) -> Key:
        """Return its mode and instances."""
        return self.mode, tuple(sorted(self.instances.values(), key=lambda one: one[1]))

    def _call(self, name: str) -> None:
        if self.fails and self.fails[0] in (name, "any"):
            self.fails.pop(0)
            raise Refused(FAILED, f"{name}: Unknown Error")

    def destroy(self, gi: int) -> None:
        """Destroy a GPU instance and all compute instances of it."""
        self._call("destroy")
        del self.instances[gi]

    def switch(self, mode: int) -> None:
        """Switch MIG mode; refused while there are instances. While something has the card open it stays pending."""
        if mode == self.mode == self.pending:
            return
        self._call("mode")
        if self.instances:
            raise Refused(FAILED, "there are instances")
        self.pending = mode
        if mode != self.mode and self.busy:
            raise Refused(IN_USE, "In use by another client")
        if mode != self.mode and self.needs_boot:
            raise Refused(RESET_REQUIRED, "the mode changes with a reset")
        self.mode = mode

    def create(self, profile: str, start: int, compute: tuple[int, ...]) -> None:
        """Create a GPU instance; the card's rules are asserted."""
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
        """Boot: instances are gone, and a switch that waited is done."""
        self.instances.clear()
        self.mode = self.pending = self.pending if self.keeps_mode else 0
        self.busy = False

    def lose(self, *, is_listed: bool) -> None:
        """Fall off the bus."""
        self.lost, self.gone = "GPU is lost" if is_listed else "", not is_listed

    def come_back(self) -> None:
        """Be read again, as after a reset: without instances."""
        self.lost, self.gone = "", False
        self.boot()

    def units(self) -> dict[str, int | None]:
        """Return UUID -> gi of what can be given."""
        return {self.uuid: None, **{uuid: gi for uuid, gi, _, _ in self.devices()}}

    def devices(self) -> list[tuple[str, int, int, int]]:
        """Return UUID, ids and compute slices of each MIG device."""
        return [
            (f"MIG-{self.index}-{profile}-{start}-{ci}", gi, ci, size)
            for gi, (profile, start, compute) in sorted(self.instances.items())
            for ci, size in enumerate(compute)
        ]

    def state(self) -> CardState:
        """Return what NVML says of the card."""
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


def enabled(index: int, *instances: Placing) -> Card:
    """Make a card in MIG mode."""
    card = Card(index, mode=1, pending=1)
    for one in instances:
        card.create(*one)
    return card
