"""Everything a build said, within bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.builds.bounded_log import BoundedLog, packed, unpacked


def log_of(lines: list[str], limit: int) -> list[str]:
    """Add lines to a log and give what it kept."""
    log = BoundedLog(limit)
    for line in lines:
        log.add(line)
    return log.lines()


def test_a_log_that_fits_is_whole() -> None:
    """A log within the limit keeps every line in order."""
    assert log_of(["a", "b", "c"], 1000) == ["a", "b", "c"]


def test_of_a_longer_one_the_beginning_and_the_end_are_kept() -> None:
    """And the number of lines between them is said."""
    kept = log_of([f"line {number:03}" for number in range(1000)], 720)
    missing = "... 990 lines were left out here, because the log is too long ..."
    assert kept == [*(f"line {number:03}" for number in range(5)), missing, *(f"line {n:03}" for n in range(995, 1000))]


@given(st.lists(st.text("ab\u00e9", max_size=30), max_size=60), st.integers(10, 400))
def test_no_log_is_larger_than_its_limit(lines: list[str], limit: int) -> None:
    """However lines come; none is invented, and none is lost without being counted."""
    kept = log_of(lines, limit)
    said = [line for line in kept if line.startswith("... ")]
    plain = [line for line in kept if not line.startswith("... ")]
    assert sum(len(line.encode()) + 1 for line in plain) <= limit
    left_out = int(said[0].split()[1]) if said else 0
    assert len(plain) + left_out == len(lines)
    assert plain == lines or said


@pytest.mark.parametrize("lines", [[], ["a"], ["a", "\u00e9\u0142 \U0001f427", ""]], ids=["none", "one", "some"])
def test_what_is_packed_is_unpacked(lines: list[str]) -> None:
    """Line by line; and the same lines give the same bytes."""
    content = packed(lines, 1000)
    assert unpacked(content) == "".join(f"{line}\n" for line in lines)
    assert packed(lines, 1000) == content


def test_a_packed_log_fits_and_says_what_is_missing() -> None:
    """Lines that hardly compress: of the first and the last as many as there is room for."""
    chance = random.Random(1)  # noqa: S311 - noise, no secret
    lines = [f"{number} {chance.randbytes(40).hex()}" for number in range(2000)]
    content = packed(lines, 20_000)
    assert len(content) <= 20_000
    text = unpacked(content).splitlines()
    assert (text[0], text[-1]) == (lines[0], lines[-1])
    (missing,) = [line for line in text if line.startswith("... ")]
    assert int(missing.split()[1]) + len(text) - 1 == len(lines)


def test_a_line_that_does_not_fit_is_left_out() -> None:
    """An empty log rather than one that its place refuses."""
    noise = random.Random(1).randbytes(5000).hex()  # noqa: S311 - noise, no secret
    assert unpacked(packed([noise], 1000)) == ""
