"""Has the cards become as the Node's label asks: sees, decides (:mod:`device_agent.mig.decide`), and has it done.

It works in the looks of its source: what is held is shown to the kubelet with the same look, and counts as shown in the
next one.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from device_agent.boot import read_boot_id, seconds_since_boot
from device_agent.devices.model import unit_of
from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.state import State
from device_agent.mig.decide import decide
from device_agent.mig.record import may_be_under_way
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
)
from device_agent.sources.beside import Beside
from device_agent.sources.in_thread import in_thread
from device_agent.sources.nvidia.roster import is_read
from device_agent.sources.said import Said
from device_agent.users.asking import Users
from device_agent.users.in_use import Seen, in_use

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations

log = logging.getLogger(__name__)

_FIRST_NODE_SECONDS = 60.0
"""So long nothing is registered because the Node was not read yet: then an API server that is away keeps no GPU."""
_SPARE_SECONDS = 0.5


class NodePort(Protocol):
    """The Node, as :class:`device_agent.node.mig_state.MigState` has it."""

    @property
    def seen(self) -> NodeMig | None:
        """Return what it says; None while that is not known."""
        ...

    @property
    def is_writing(self) -> bool:
        """Return whether a write is under way, or has to be waited for."""
        ...

    def write(self, write: NodeWrite) -> None:
        """Begin to write."""
        ...


class _Read(NamedTuple):
    layouts: Layouts


class MigKeeper:
    """Keeps the layout. ``port``: the Node. ``read``: reads what the file asks for under a key; it may wait for a disk.

    ``users``: looks at who has devices. ``given``: what was given. ``wake``: has the source look again.
    """

    def __init__(
        self,
        port: NodePort,
        read: Callable[[str], Layouts],
        users: Users,
        given: "Allocations",
        wake: Callable[[], None],
    ) -> None:
        self.step = Step(registers=False)
        self._port = port
        self._read = read
        self._users = users
        self._given = given
        self._wake = wake
        self._reading: Beside[_Read] = Beside("MIG layouts", wake)
        self._layouts: Layouts | None = None
        self._seen: UnitUsers | None = None
        self._unknown = ""
        self._shown = Shown()
        self._offered: frozenset[str] = frozenset()
        self._memory = Memory()
        self._began = seconds_since_boot()
        self._inherited: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._boot_id = read_boot_id("/")
        self._say = Said(log, "mig")
        self._why = ""

    async def look(self, state: State | None, settings: MigSettings, ask: Callable[[MigChange], bool]) -> Step:
        """Go one step with what is known now. ``ask``: has a card changed; returns whether that was asked."""
        if not await self._is_given_known():
            return self.step
        if self._offered != self._shown.cards:
            self._shown = Shown(cards=self._offered, since=seconds_since_boot())
        self._take_users()
        await self._read_layouts()
        sight = self._sight(state, settings)
        self.step = step = self._done(decide(sight), sight, ask)
        if step.why != self._why:
            self._why = step.why
            log.info("mig: %s", step.why or "the layout is as it is to be")
        return step

    def has_offered(self) -> None:
        """Take note that what is held now is what the kubelet is shown."""
        self._offered = self.step.held
        if self._offered != self._shown.cards:
            self._wake()

    async def close(self) -> None:
        """End what is under way."""
        if self._timer is not None:
            self._timer.cancel()
        await self._reading.close()
        await self._users.close()

    def _sight(self, state: State | None, settings: MigSettings) -> Sight:
        node = self._port.seen
        if node is not None and self._inherited is None:
            self._inherited = self._began if may_be_under_way(node.record) else 0.0
        return Sight(
            node=node,
            layouts=self._layouts,
            state=state if state is not None and is_read(state) else None,
            users=self._seen,
            unknown=self._unknown,
            now=time.time(),
            clock=seconds_since_boot(),
            boot_id=self._boot_id,
            inherited=self._inherited or 0.0,
            settings=settings,
            shown=self._shown,
            memory=self._memory,
        )

    def _done(self, step: Step, sight: Sight, ask: Callable[[MigChange], bool]) -> Step:
        """Have done what was decided; while a write is under way, which may end the change, nothing else is."""
        memory = step.memory
        if self._port.is_writing:
            memory = replace(memory, sent=self._memory.sent if step.change is not None else memory.sent)
        elif step.write is not None:
            self._port.write(step.write)
        elif step.change is not None:
            log.info("mig: asks for %s", step.change)
            if not ask(step.change):
                memory = replace(memory, sent=None)
        self._memory = memory
        if sight.node is None and sight.clock - self._began > _FIRST_NODE_SECONDS:
            step = replace(step, registers=True)
        self._wait(step, sight)
        return step

    def _wait(self, step: Step, sight: Sight) -> None:
        """Look at users, and again at the time that the step names."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        again = step.again
        if step.looks:
            seen = self._seen
            pause = 0.0 if again is None else again - _SPARE_SECONDS
            if seen is None or seen.at <= sight.shown.since or sight.clock - seen.at >= pause:
                self._users.ask(soon=not self._unknown)
        if again is not None:
            self._timer = asyncio.get_running_loop().call_later(again, self._wake)

    def _take_users(self) -> None:
        seen = self._users.take()
        if seen is None:
            return
        self._given.see(seen.shown or (), seen.asked_at)
        held = in_use(seen, self._given.given, self._given.recent)
        if held is None:
            self._seen, self._unknown = None, seen.why or "what was given is not known"
            return
        units: dict[str, set[Holding]] = {}
        for one in held:
            units.setdefault(unit_of(one.id), set()).update(_holdings(seen, one.resource, one.id))
        self._unknown = ""
        self._seen = UnitUsers(at=seen.asked_at, units={unit: frozenset(pods) for unit, pods in units.items()})

    async def _read_layouts(self) -> None:
        """Read what is asked for; while the disk does not answer, what was read last stays."""
        key = self._port.seen.asked if self._port.seen is not None else None
        if not key:
            return
        self._settle()
        if await self._reading.do(lambda: _Read(self._read(key))):
            self._settle()

    def _settle(self) -> None:
        if (done := self._reading.take()) is not None:
            self._layouts = done.layouts

    async def _is_given_known(self) -> bool:
        if self._given.given is not None:
            return True
        try:
            await in_thread(self._given.load, "mig")
        except OSError as error:
            why = f"cannot read what was given: {error.strerror or error}"
            self._say("given", f"{why}; no MIG layout is changed")
            self.step = replace(self.step, why=why, registers=True)
            return False
        self._say("given", "")
        return True


def _holdings(seen: Seen, resource: str, name: str) -> set[Holding]:
    holders = seen.holders.get((resource, name), ())
    return {Holding(one.pod, resource) for one in holders} or {Holding("", resource)}
