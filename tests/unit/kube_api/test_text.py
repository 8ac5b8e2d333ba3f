"""Text of others becomes one printable line of bounded length."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api.text import MAX_MESSAGE, MAX_TOKEN, bounded_message, bounded_token, first_few, printable

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text, st.integers(min_value=3, max_value=40))
def test_any_text_can_be_written_and_shown(text: str, limit: int) -> None:
    """It has an encoding, one line, no control character, and the length that was asked for."""
    made = printable(text, limit)
    made.encode()
    assert len(made) <= limit
    assert len(made.splitlines()) <= 1
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in made)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain words", "plain words", id="as it is"),
        pytest.param("\x1b[31mred\x1b[0m \x1b]0;title\x07end", "red end", id="control sequences of a terminal"),
        pytest.param("a\r\nb\tc", "a b c", id="several lines"),
        pytest.param("half \ud800", "half \ufffd", id="lone surrogate"),
        pytest.param("a\u202eb\x00", "ab", id="direction marks and NUL"),
        pytest.param("x" * 501, "x" * 497 + "...", id="cut"),
    ],
)
def test_what_cannot_be_shown_goes(text: str, expected: str) -> None:
    """Unprintable characters are removed; the words stay."""
    assert printable(text, MAX_MESSAGE) == expected


def stored(text: str) -> bytes:
    """A text as the API server hands it to etcd: Go's JSON, which escapes what HTML has a use for."""
    encoded = json.dumps(text, ensure_ascii=False)[1:-1]
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded.encode()


@given(any_text | st.text('<&"\\\U0001f600x', min_size=60, max_size=600))
def test_a_message_is_bounded_as_it_is_stored(text: str) -> None:
    """Whatever is in it; and what was cut is not cut again when it comes back out of a status."""
    made = bounded_message(text)
    assert len(stored(made)) <= MAX_MESSAGE
    assert bounded_message(made) == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("x" * 500, "x" * 500, id="one byte each"),
        pytest.param("x" * 501, "x" * 497 + "...", id="cut"),
        pytest.param("<" * 83, "<" * 83, id="six bytes each"),
        pytest.param("<" * 84, "<" * 82 + "...", id="six bytes each, cut"),
        pytest.param('"' * 251, '"' * 248 + "...", id="two bytes each"),
        pytest.param("\U0001f600" * 126, "\U0001f600" * 124 + "...", id="four bytes each"),
    ],
)
def test_a_message_has_as_much_as_fits(text: str, expected: str) -> None:
    """No character is cut in two."""
    assert bounded_message(text) == expected


@given(any_text)
def test_a_token_is_bounded(value: str) -> None:
    """A token's length is limited, whatever it contains."""
    made = bounded_token(value)
    made.encode()
    assert len(made) <= MAX_TOKEN
    assert bounded_token(made) == made


def test_tokens_are_distinguished() -> None:
    """A short one is itself, as it always was; long ones that begin alike are different."""
    assert bounded_token("2026-11-22") == "2026-11-22"
    assert bounded_token("x" * 250_000) != bounded_token("x" * 250_001)


@pytest.mark.parametrize(
    ("items", "separator", "words"),
    [
        pytest.param([], ", ", "", id="none"),
        pytest.param(["a", 2], ", ", "a, 2", id="all of them"),
        pytest.param("abcd", ", ", "a, b and 2 more", id="some, with commas"),
        pytest.param("abc", "; ", "a; b; and 1 more", id="some, with semicolons"),
    ],
)
def test_the_first_few_are_named_and_the_others_counted(items: list[object], separator: str, words: str) -> None:
    """A fleet has thousands of nodes, and a message has a line."""
    assert first_few(items, 2, separator=separator) == words
