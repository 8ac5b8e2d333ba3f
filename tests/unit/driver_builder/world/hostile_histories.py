"""What hostile histories have in common: the steps that are made of a seed, and how they are played."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from driver_builder.nodes.changes import Change
from tests.support.driver_builder.model_world import World

ROUND_SECONDS = 20.0

AnyWorld = TypeVar("AnyWorld", bound=World)
Event = Callable[[AnyWorld, random.Random], None]


@dataclass(frozen=True)
class Happening:
    """An event with chances of its own, and the rounds after it, each with the write after which it is killed."""

    name: str
    seed: float
    rounds: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Making:
    """How the steps of a history are made.

    There are ``least`` to ``most``, each with ``rounds`` at most, of which a ``killed`` part ends after so many
    ``writes`` at most.
    """

    least: int
    most: int
    rounds: int
    killed: float
    writes: int

    def steps(self, chance: random.Random, events: Sequence[Event[AnyWorld]]) -> tuple[Happening, ...]:
        """Make the steps; they stay the same while the events do."""

        def happening() -> Happening:
            ends = (
                chance.randint(0, self.writes) if chance.random() < self.killed else None
                for _ in range(chance.randint(0, self.rounds))
            )
            return Happening(chance.choice(events).__name__, chance.random(), tuple(ends))

        return tuple(happening() for _ in range(chance.randint(self.least, self.most)))


OF_WAVES = (
    "under_its_lock", "within_its_budget", "not_where_an_admin_forbids", "one_driver_at_a_time",
    "the_next_image_is_there_first", "the_last_good_image_can_be_had", "ready_only_with_a_proof_of_this_boot",
    "nothing_that_is_there_is_built", "all_is_in_order_in_the_end", "at_rest_nothing_is_written",
)  # fmt: skip
"""The invariants whose premises occur wherever a wave comes to its end."""


def rarely(least: Mapping[str, int], played: Sequence[Counter[str]]) -> dict[str, int]:
    """Return the invariants whose premise occurs in fewer histories than it should, with how many these are."""
    found = {name: sum(counts[name] > 0 for counts in played) for name in least}
    return {name: number for name, number in found.items() if number < least[name]}


def some_node(world: World, chance: random.Random) -> str:
    """Choose a node."""
    return chance.choice(sorted(world.kernels))


def play_steps(world: AnyWorld, steps: Sequence[Happening], events: Sequence[Event[AnyWorld]]) -> None:
    """Let each event happen, and its rounds pass."""
    known = {event.__name__: event for event in events}
    for step in steps:
        known[step.name](world, random.Random(step.seed))  # noqa: S311  # no secret
        for end in step.rounds:
            pass_round(world, end)


def pass_round(world: World, end: int | None) -> None:
    """Let a round pass; after so many writes it is cut off, and the controller starts anew with the next one."""
    writes = 0

    def look(action: Change) -> bool:
        nonlocal writes
        world.look(action)
        writes += 1
        return end is not None and writes > end

    world.reconcile(look)
    world.finish_builds()
    world.turn()
    world.now += ROUND_SECONDS
