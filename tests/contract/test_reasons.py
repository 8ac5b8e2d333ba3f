"""The table of reasons: whole, fit for a status, and what the documentation shows."""

import pytest

from driver_builder.base.reasons import (
    IN_TROUBLE,
    REASONS,
    SECTIONS,
    Reason,
    TargetState,
    meaning_of,
    remedy_of,
    suspends,
    with_remedy,
    without_remedy,
)
from tests.reasons_page import PAGE, page

LONGEST_REMEDY = 200
"""Of the 500 bytes of a message, so that what is wrong has its place, too."""


def test_every_reason_is_in_the_table_once() -> None:
    """Nothing is reported that nobody explains."""
    assert set(REASONS) == set(Reason)
    assert sum(len(part) for part in SECTIONS.values()) == len(Reason)


def test_every_state_is_that_of_some_reason() -> None:
    """The states of the table are those that targets have."""
    assert {state for meaning in REASONS.values() for state in meaning.states} == set(TargetState)


@pytest.mark.parametrize("reason", Reason)
def test_a_target_in_trouble_has_a_remedy(reason: Reason) -> None:
    """Who reads that something failed is told what to do."""
    assert REASONS[reason].remedy or IN_TROUBLE.isdisjoint(REASONS[reason].states)
    assert REASONS[reason].remedy or reason not in SECTIONS["Load reports of driver pods"]


@pytest.mark.parametrize("reason", Reason)
def test_words_are_fit_for_a_status_and_a_table(reason: Reason) -> None:
    """One line each, a sentence without its full stop, stored as it is written, and no end of a table's cell."""
    for text in (REASONS[reason].summary, REASONS[reason].remedy):
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & set('"\\<>&|')
        assert not text.endswith((".", " "))
        assert text[:1] == text[:1].upper()
    assert len(REASONS[reason].remedy) <= LONGEST_REMEDY


@pytest.mark.parametrize("reason", [reason for reason in Reason if suspends(reason)])
def test_only_a_build_that_failed_suspends_others(reason: Reason) -> None:
    """What suspends is a failure of builds."""
    assert TargetState.FAILED in REASONS[reason].states


@pytest.mark.parametrize("reason", Reason)
def test_a_remedy_comes_off_as_it_was_added(reason: Reason) -> None:
    """Explain shows message and remedy apart, and reads them from a condition that has both."""
    text = with_remedy(reason, "what is wrong")
    assert text.count(remedy_of(reason) or "what is wrong") == 1
    assert without_remedy(reason, text) == "what is wrong"


def test_a_word_of_another_version_has_no_remedy() -> None:
    """A status may have been written by a later controller."""
    assert meaning_of("Unheard") is None
    assert with_remedy("Unheard", "what is wrong") == "what is wrong"
    assert not suspends("Unheard")


def test_the_page_of_reasons_is_up_to_date() -> None:
    """docs/reasons.md equals the output of `make docs`."""
    assert PAGE.read_text() == page()
