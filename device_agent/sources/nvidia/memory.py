"""What has to survive the agent: GPUs, errors that are held against them or were counted, the profile. Pure."""

import json
from dataclasses import asdict, dataclass, replace

from device_agent.gpu_state.checks import Check, flag, integer, optional, record, seconds, several, text, word
from device_agent.gpu_state.state import MOST_CARDS, MOST_INSTANCES, State
from device_agent.gpu_state.state_json import CARDS, VERSION, parse_object, plain_card
from device_agent.sources.nvidia.health import Rules, Verdict, judged, new_events
from device_agent.sources.nvidia.roster import EMPTY, Roster, after_state, identities

LONGEST_FILE = 1 << 22
"""Bytes: more than as many GPUs as a state has can take, with an error of each of their instances."""

_MOST_VERDICTS = 2 * MOST_CARDS * (MOST_INSTANCES + 2)
"""Of the GPUs that are known, and of as many that are not."""
_XID = integer(most=2**32 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is known after a state.

    ``session``, ``number``: the last Xid event that was counted. ``profile``: the key of the one in force; or none.
    """

    roster: Roster = EMPTY
    verdicts: tuple[Verdict, ...] = ()
    session: str = ""
    number: int = 0
    profile: str = ""


def after(memory: Memory, state: State, rules: Rules) -> tuple[Memory, int]:
    """Return what is known after a state, and how many cards it has of which nobody knows the UUID."""
    roster, unnamed = after_state(memory.roster, state, {one.uuid for one in memory.verdicts})
    events = new_events(state, memory.session, memory.number)
    is_same = state.session == memory.session
    with_action = {card.uuid for card in memory.roster.cards if card.recovery_action is not None}
    return replace(
        memory,
        roster=roster,
        verdicts=judged(memory.verdicts, state, events, roster.cards, rules, with_action=with_action),
        session=state.session,
        number=max((event.number for event in state.xids), default=memory.number if is_same else 0),
    ), unnamed


def surviving(memory: Memory) -> Memory:
    """Return what survives. How GPUs are does not, nor how far one is on its way back: it begins again."""
    verdicts = tuple(one if one.good_since is None else replace(one, good_since=None) for one in memory.verdicts)
    return replace(memory, roster=identities(memory.roster), verdicts=verdicts)


def dump_memory(memory: Memory) -> bytes:
    """Write what survives."""
    kept = surviving(memory)
    verdicts = [{name: value for name, value in asdict(one).items() if name != "good_since"} for one in kept.verdicts]
    plain = {
        "version": VERSION,
        "session": kept.session,
        "number": kept.number,
        "boot": kept.roster.boot,
        "load": kept.roster.load,
        "cards": [plain_card(card) for card in kept.roster.cards],
        "verdicts": verdicts,
        "profile": kept.profile,
    }
    return json.dumps(plain, separators=(",", ":")).encode()


def parse_memory(content: bytes) -> Memory:
    """Read what has survived.

    Raises:
        StateInvalid: says what is wrong.
    """
    plain = parse_object(content, LONGEST_FILE)
    # An agent before wrote no profile.
    return _MEMORY({"profile": "", **{name: value for name, value in plain.items() if name != "version"}}, "the file")


def _memory(**fields: object) -> Memory:
    roster = Roster(**{name: fields.pop(name) for name in ("boot", "load", "cards")})  # type: ignore[arg-type] # checked
    return Memory(roster=roster, **fields)  # type: ignore[arg-type] # as above


_VERDICT: Check[Verdict] = record(
    Verdict,
    {
        "uuid": word,
        "xid": _XID,
        "at": seconds,
        "boot": word,
        "load": word,
        "gi": optional(integer()),
        "ci": optional(integer()),
        "is_away": flag,
        "knows_action": flag,
    },
)


def _verdict(value: object, place: str) -> Verdict:
    """Check a verdict; one of an agent that did not write ``knows_action`` is a verdict, too."""
    return _VERDICT({"knows_action": False, **value} if isinstance(value, dict) else value, place)


_MEMORY: Check[Memory] = record(
    _memory,
    {
        "session": word,
        "number": integer(),
        "boot": word,
        "load": word,
        "cards": CARDS,
        "verdicts": several(_verdict, _MOST_VERDICTS),
        "profile": text,
    },
)
