"""Who may ask a registry now, beside any number of registries that hang."""

from collections.abc import Iterable

import pytest

from driver_builder.registry.turns import (
    HANGING_SECONDS,
    MOST,
    MOST_HANGING,
    MOST_HANGING_OF_A_NAMESPACE,
    MOST_OF_A_HOST,
    MOST_OF_A_NAMESPACE,
    MOST_PROBES,
    Place,
    Turn,
    Turns,
)

GOOD = Place("good", "good.io")


def ask(turns: Turns, places: Iterable[Place], now: float = 0.0) -> list[Turn]:
    """Ask one question of each place that has room."""
    return [turns.begin(place, now) for place in places if turns.has_room(place)]


def hosts(namespace: str, number: int = 100) -> list[Place]:
    """Name registries of one namespace."""
    return [Place(namespace, f"{namespace}-{host}.io") for host in range(number)]


def crowd(namespaces: int = 100) -> list[Place]:
    """Name many registries in each of many namespaces."""
    return [place for namespace in range(namespaces) for place in hosts(f"n{namespace}")]


def test_eight_namespaces_whose_registries_hang_leave_room_for_a_ninth() -> None:
    """Each of them has as many probes as it may have, or as there is room for."""
    turns = Turns()
    asked = ask(turns, crowd(8))
    assert max(sum(turn.place.namespace == f"n{n}" for turn in asked) for n in range(8)) == MOST_PROBES
    assert turns.has_room(GOOD)


def test_registries_that_never_answered_leave_turns_for_those_that_did() -> None:
    """However many ask for the first time."""
    turns = Turns()
    turns.saw(GOOD, is_answer=True)
    ask(turns, crowd())
    assert turns.has_room(GOOD)


def test_silent_registries_leave_turns_for_those_that_were_never_asked() -> None:
    """Also in their own namespace, and where that has a probe under way."""
    turns = Turns()
    known = crowd(50)
    for place in known:
        turns.saw(place, is_answer=False)
    ask(turns, known)
    assert turns.has_room(GOOD)
    assert all(turns.has_room(Place(f"n{n}", "new.io")) for n in range(50))


def test_registries_that_are_new_leave_turns_for_a_namespace_without_a_probe() -> None:
    """Its first probe goes first."""
    turns = Turns()
    ask(turns, [place for n in range(7) for place in hosts(f"n{n}", MOST_PROBES)])
    assert not turns.has_room(Place("n6", "one-more.io"))
    assert turns.has_room(GOOD)


def test_a_host_that_hangs_for_some_is_asked_by_those_whom_it_answers() -> None:
    """Of the questions to one host the last is theirs."""
    turns = Turns()
    turns.saw(GOOD, is_answer=True)
    asked = ask(turns, [Place(f"n{n}", GOOD.host) for n in range(10)])
    turns.release_hanging(HANGING_SECONDS)
    assert len(asked) == MOST_OF_A_HOST - 1
    assert turns.has_room(GOOD)


def test_a_question_that_hangs_gives_its_turn_back_and_its_place_gets_no_second_one() -> None:
    """Before it does, the others of its namespace wait."""
    turns = Turns()
    hanging = ask(turns, hosts("n"))
    assert not turns.has_room(Place("n", "next.io"))
    assert turns.release_hanging(HANGING_SECONDS - 1) == HANGING_SECONDS
    assert not turns.has_room(Place("n", "next.io"))
    assert turns.release_hanging(HANGING_SECONDS) is None
    assert turns.has_room(Place("n", "next.io"))
    assert not turns.has_room(hanging[0].place)
    turns.end(hanging[0])
    assert turns.has_room(hanging[0].place)


@pytest.mark.parametrize("is_answer", [True, False, None], ids=["answered", "silent", "new"])
def test_questions_are_bounded_whatever_hangs(is_answer: bool | None) -> None:
    """In all, of a namespace and of a host; once all ended nothing is left of them."""
    turns = Turns()
    places = [*crowd(20), *(Place(f"n{n}", "shared.io") for n in range(100))]
    if is_answer is not None:
        for place in places:
            turns.saw(place, is_answer=is_answer)
    asked: list[Turn] = []
    for step in range(100):
        now = step * HANGING_SECONDS
        turns.release_hanging(now)
        asked += ask(turns, places, now)
    by_namespace = [sum(turn.place.namespace == f"n{n}" for turn in asked) for n in range(100)]
    assert len(asked) == len(turns) <= MOST + MOST_HANGING
    assert max(by_namespace) <= MOST_OF_A_NAMESPACE + MOST_HANGING_OF_A_NAMESPACE
    assert sum(turn.place.host == "shared.io" for turn in asked) <= MOST_OF_A_HOST
    for turn in asked:
        turns.end(turn)
    turns.keep(())
    assert turns == Turns()
