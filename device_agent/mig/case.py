"""One sight of a node, what follows from it, and the steps that only wait or say something. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from device_agent.gpu_state.mig_change import RESET_REQUIRED
from device_agent.mig.node_write import FAILED, PENDING, Said, renewal_of, write_of
from device_agent.mig.record import BETWEEN, IDLE, REBOOTING, RESTORING, Before, Record
from device_agent.mig.targets import Target
from device_agent.mig.values import Holding, Layouts, Memory, NodeMig, Rest, Sight, Step

SOON, LATER = 2.0, 10.0
"""Seconds until what has no event is looked at again: users and answers, and what changes rarely."""
_FIRST_REST, _LONGEST_REST = 10.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A sight. ``before``: of the record, without cards that are waited for no more. ``memory``: after the last answer.

    ``lost``: why cards of ``before`` cannot be seen; empty if they can.
    ``refusal``: why what is asked for cannot be had; empty if it can.
    """

    sight: Sight
    node: NodeMig
    record: Record
    before: Before = field(default_factory=dict)
    memory: Memory
    lost: str = ""
    refusal: str = ""

    @property
    def restores(self) -> bool:
        """Return whether what is asked for was given up, and the same is asked still."""
        return self.record.step == RESTORING and self.record.asked == self.node.asked

    @property
    def goes_back(self) -> bool:
        """Return whether cards are to become as before."""
        return not self.node.asked or bool(self.refusal) or self.restores

    @property
    def is_new(self) -> bool:
        """Return whether something else is asked for than what the record is about."""
        return bool(self.node.asked) and self.node.asked != self.record.asked

    @property
    def is_again(self) -> bool:
        """Return whether the layout was reached before, and has to be made again: after a boot, reset or reload."""
        return bool(self.record.applied) and self.record.applied == self.node.asked

    def waits_for_boot(self, target: Target) -> bool:
        """Return whether a boot brings the mode that a card is to have, and nothing else does.

        The driver has said so, or the Node does. A switch that is pending for another reason is asked for again.
        """
        said = self.sight.state.mig_changes if self.sight.state is not None else ()
        is_known = self.record.step == REBOOTING and target.card.uuid in self.record.before
        wants_reset = any(one.card == target.card.uuid and one.outcome == RESET_REQUIRED for one in said)
        return target.is_switching and (is_known or wants_reset)

    @property
    def question(self) -> Layouts:
        """Return what is asked for."""
        return self.sight.layouts if self.node.asked and self.sight.layouts else Layouts(key="")

    def users(self, due: Sequence[Target]) -> frozenset[Holding]:
        """Return who has what goes."""
        units = self.sight.users.units if self.sight.users is not None else {}
        return frozenset(one for target in due for unit in target.units for one in units.get(unit, ()))

    def new_record(self, step: str, before: Before, message: str) -> Record:
        """Make the record of a step."""
        return Record(
            asked=self.node.asked or "", applied=self.record.applied, step=step, before=before, message=message
        )

    def rested(self, users: frozenset[Holding] | None = None) -> Memory:
        """Remember that a try has failed; the pause doubles as long as the question is the same."""
        rest, clock = self.memory.rest, self.sight.clock
        new = Memory(rest=rest)
        if rest is not None and rest.layouts == self.question:
            if rest.until > clock:
                return new  # of the same failure
            tries = rest.tries + 1
        else:
            tries = 1
        pause = min(_LONGEST_REST, _FIRST_REST * 2 ** min(tries - 1, 10))
        return replace(new, rest=Rest(layouts=self.question, until=clock + pause, users=users, tries=tries))

    def waits(
        self,
        why: str,
        *,
        again: float = LATER,
        looks: bool = False,
        begins: Sequence[Target] = (),
        hides: bool = False,
        renews: bool = True,
    ) -> Step:
        """Wait, and keep the lock if there is one.

        ``begins``: what is to be changed at once. ``hides``: whether nothing may be registered meanwhile.
        ``renews``: False where nobody knows for how long: the lock ends then, and others may work on the node.
        """
        at_once = self._at_once(begins)
        return Step(
            write=renewal_of(self.node, self.sight.boot_id, self.sight.now) if renews else None,
            held=frozenset(self.before or self.record.before) or at_once,
            why=why,
            again=again,
            looks=looks,
            registers=not (hides or at_once),
            memory=self.memory,
        )

    def says(self, said: Said, why: str, *, again: float | None = None, memory: Memory | None = None) -> Step:
        """Have the Node say something; cards of a change that is not over are held."""
        return Step(
            write=write_of(self.node, said, self.sight.boot_id, self.sight.now),
            held=frozenset(said.record.before) if said.record is not None else frozenset(),
            why=why,
            again=again,
            memory=self.memory if memory is None else memory,
        )

    def pends(self, why: str, begins: Sequence[Target] = ()) -> Step:
        """Say what is waited for; nothing was touched. ``begins``: as for :meth:`waits`."""
        said, at_once = Said(state=PENDING, record=self.new_record(IDLE, {}, why)), self._at_once(begins)
        return replace(self.says(said, why, again=LATER), looks=True, held=at_once, registers=not at_once)

    def _at_once(self, begins: Sequence[Target]) -> frozenset[str]:
        """Return the cards that are held before it is written down what they have: no device of them is right."""
        return frozenset(one.card.uuid for one in begins) if self.is_again else frozenset()

    def stays_between(self, why: str, memory: Memory | None = None) -> Step:
        """Say that cards are neither as asked nor as before, and release the lock until the next try."""
        said = Said(state=FAILED, record=self.new_record(BETWEEN, self.before, why))
        return self.says(said, why, again=LATER, memory=memory)
