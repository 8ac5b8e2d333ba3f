"""Which question to a registry may be asked now: questions that hang do not delay registries that answer.

Place in the flow: ``image_answers`` asks here before it starts a thread. A *place* is a registry as one namespace sees
it. It answers, it is new, or it is silent: its last question had no answer. A place that answers gets several
questions at once, any other a single one, a probe. A question without an answer for :data:`HANGING_SECONDS` gives its
turn back and ends by its own deadline, so one that hangs blocks no turn for longer.

The last turns are reserved: for places that answer, then for the first probe of a namespace, then for new places.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_OF_A_HOST = 4
MOST_OF_A_NAMESPACE = 8
MOST = 32
"""Turns at the same time: one registry, or one namespace with many of them, does not block the others."""
MOST_PROBES = 4
"""Turns of a namespace for places that do not answer; the rest is for those that do."""
KEPT = 4
"""Turns that each probe leaves free, and as many more if it is not the first one or its place is silent."""

HANGING_SECONDS = 2.0
MOST_HANGING = 64
MOST_HANGING_OF_A_NAMESPACE = 16
"""Questions that hang and no longer have a turn: with :data:`MOST` they bound the threads."""


class Place(NamedTuple):
    """A registry as a namespace sees it."""

    namespace: str
    host: str


@dataclass(slots=True, eq=False)
class Turn:
    """A question that is being asked, since ``since``; ``is_over`` once it hangs and no longer counts as a turn."""

    place: Place
    since: float
    is_probe: bool
    is_over: bool = False


@dataclass(slots=True)
class Turns:
    """The questions that are being asked; the caller holds a lock."""

    _taken: dict[Turn, None] = field(default_factory=dict)
    """The oldest first."""
    _answered: dict[Place, bool] = field(default_factory=dict)
    """Whether the last question of a place had an answer."""
    _turns: Counter[str] = field(default_factory=Counter)
    """Turns of a namespace. All is counted as it goes, because thousands of questions may wait."""
    _probe_turns: Counter[str] = field(default_factory=Counter)
    """Of these, probes."""
    _hanging: Counter[str] = field(default_factory=Counter)
    """Questions of a namespace that hang."""
    _hosts: Counter[str] = field(default_factory=Counter)
    """Questions to a host, also those that hang."""
    _probed: set[Place] = field(default_factory=set)
    """Places that a probe is asking, also one that hangs."""

    def __len__(self) -> int:
        """Count the questions that are being asked."""
        return self._hosts.total()

    def has_room(self, place: Place) -> bool:
        """Return whether a question may be asked now."""
        if self._hosts[place.host] >= MOST_OF_A_HOST or self._turns[place.namespace] >= MOST_OF_A_NAMESPACE:
            return False
        answered = self._answered.get(place)
        if answered:
            return len(self._taken) < MOST
        is_silent, is_first = answered is False, not self._probe_turns[place.namespace]
        return (
            place not in self._probed
            and self._hosts[place.host] < MOST_OF_A_HOST - 1
            and self._probe_turns[place.namespace] < MOST_PROBES - is_silent
            and len(self._taken) < MOST - KEPT * (1 + (not is_first) + 2 * is_silent)
        )

    def begin(self, place: Place, now: float) -> Turn:
        """Take a turn."""
        turn = Turn(place, now, is_probe=not self._answered.get(place))
        self._taken[turn] = None
        self._hosts[place.host] += 1
        self._turns[place.namespace] += 1
        if turn.is_probe:
            self._probe_turns[place.namespace] += 1
            self._probed.add(place)
        return turn

    def end(self, turn: Turn) -> None:
        """Release a turn."""
        if turn.is_over:
            _take(self._hanging, turn.place.namespace)
        else:
            self._give_back(turn)
        _take(self._hosts, turn.place.host)
        if turn.is_probe:
            self._probed.remove(turn.place)

    def saw(self, place: Place, *, is_answer: bool) -> None:
        """Record how a question ended."""
        self._answered[place] = is_answer

    def release_hanging(self, now: float) -> float | None:
        """Take their turns from questions that hang; returns when the next one is due."""
        for turn in tuple(self._taken):
            if self._hanging.total() >= MOST_HANGING:
                return None
            if self._hanging[turn.place.namespace] >= MOST_HANGING_OF_A_NAMESPACE:
                continue
            if now < turn.since + HANGING_SECONDS:
                return turn.since + HANGING_SECONDS
            turn.is_over = True
            self._give_back(turn)
            self._hanging[turn.place.namespace] += 1
        return None

    def keep(self, places: Iterable[Place]) -> None:
        """Forget all other places."""
        kept = set(places)
        self._answered = {place: answered for place, answered in self._answered.items() if place in kept}

    def _give_back(self, turn: Turn) -> None:
        del self._taken[turn]
        _take(self._turns, turn.place.namespace)
        if turn.is_probe:
            _take(self._probe_turns, turn.place.namespace)


def _take(counter: Counter[str], key: str) -> None:
    """Count one less; entries of 0 are removed, because anybody may name hosts."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
