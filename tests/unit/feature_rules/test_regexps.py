"""Regular expressions: what matches, what is refused, and that no pattern can hang the worker."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules import regexps
from feature_rules.errors import MatchError
from feature_rules.regexps import check_pattern, is_found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param("AVX", "xAVX2", True, id="plain text anywhere"),
        pytest.param("^AVX", "xAVX2", False, id="anchored start"),
        pytest.param("^AVX", "AVX2", True, id="at the start"),
        pytest.param("AVX$", "xAVX", True, id="at the end"),
        pytest.param("AVX$", "AVX\n", False, id="the end is not before a line end"),
        pytest.param("^AVX$", "AVX", True, id="whole"),
        pytest.param("^AVX$", "AVX2", False, id="not whole"),
        pytest.param("", "anything", True, id="empty pattern"),
        pytest.param("^$", "", True, id="empty text"),
        pytest.param("^AVX[0-9]+$", "AVX512", True, id="class and repetition"),
        pytest.param("(?i)avx", "AVX", True, id="flag"),
        pytest.param("a.c", "aéc", True, id="a dot is a character and not a byte"),
        pytest.param(r"\$$", "1$", True, id="escaped anchor"),
        pytest.param(r"\pL", "é", True, id="Unicode class"),
        pytest.param("[a]", "\ud800a", True, id="text that is not valid Unicode"),
    ],
)
def test_a_pattern_is_found_anywhere(pattern: str, text: str, found: bool) -> None:
    """A pattern matches anywhere in the text, unless it has anchors."""
    assert is_found(pattern, text) == found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        pytest.param("(", "missing \\)", id="open group"),
        pytest.param("(?=a)", "invalid perl operator", id="look-ahead"),
        pytest.param(r"(a)\1", "invalid escape sequence", id="back-reference"),
        pytest.param("a{1001}", "invalid repetition size", id="repetition too large"),
        pytest.param("[\ud800]", "not valid Unicode", id="lone surrogate"),
        pytest.param(r"\pL{500}", "too large", id="needs too much memory"),
    ],
)
def test_a_bad_pattern_is_refused_with_the_reason(pattern: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The engine's own words become the message, and it writes nothing to the log by itself."""
    with pytest.raises(MatchError, match=f"is not a regular expression: .*{reason}"):
        check_pattern(pattern)
    assert capfd.readouterr() == ("", "")


def test_nested_repetition_takes_no_time() -> None:
    """The pattern that takes a backtracking engine for ever is answered at once."""
    start = time.thread_time()
    assert not is_found("(a+)+$", "a" * 100_000 + "!")
    assert time.thread_time() - start < 1


def test_plain_text_needs_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchored or not, a literal is checked and found without importing RE2."""
    monkeypatch.setitem(sys.modules, "re2", None)
    regexps.engine.cache_clear()
    check_pattern("^0300$")
    assert is_found("^03", "0300")


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("^AVX[0-9]+$", id="class and repetition"),
        pytest.param(r"^[0-9]+\.15?.*", id="escape, optional, anything"),
        pytest.param("[^a-z]x", id="class of others"),
    ],
)
def test_a_simple_pattern_needs_no_engine(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most patterns of rules: RE2 stays away."""
    monkeypatch.setitem(sys.modules, "re2", None)
    regexps.engine.cache_clear()
    check_pattern(pattern)
    assert not is_found(pattern, "a")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param("a*a*a*a*a*b", "a" * 1000, id="many repetitions"),
        pytest.param("a?" * 60 + "a" * 60 + "b", "a" * 60, id="many optional ones"),
        pytest.param("a.*b.*c", "ab" * 20_000, id="a long text"),
    ],
)
def test_what_would_take_many_steps_is_for_the_engine(pattern: str, text: str) -> None:
    """Backtracking is bounded; RE2 answers the rest."""
    simple = regexps._simple(pattern)
    assert simple is not None
    assert simple.steps(len(text)) > regexps._MOST_STEPS
    start = time.thread_time()
    assert not is_found(pattern, text)
    assert time.thread_time() - start < 1


CHARACTERS = st.sampled_from(
    [*"ab0Z_-. ", r"\.", r"\$", r"\\", r"\-", "[a-z]", "[^a-b]", "[0-9A]", "[._ ]", "[z-a]", "."]
)
SIGNS = st.sampled_from(["", "", "*", "+", "?"])
SIMPLE = st.builds(
    lambda start, middle, end: start + "".join(map("".join, middle)) + end,
    st.sampled_from(["", "^"]),
    st.lists(st.tuples(CHARACTERS, SIGNS), max_size=6),
    st.sampled_from(["", "$"]),
)
TEXTS = st.one_of(st.text(alphabet="ab0Z_-. \\$\n\ré\u2028\ud800", max_size=12), st.text(max_size=12))


@given(SIMPLE, TEXTS)
def test_simple_patterns_match_as_the_engine_would(pattern: str, text: str) -> None:
    """Whatever the text: line ends, other alphabets, lone surrogates."""
    simple = regexps._simple(pattern)
    assert (simple is None) == ("[z-a]" in pattern)
    if simple is not None:
        engines = regexps._compiled(pattern).search(text.encode(errors="replace")) is not None
        assert (simple.compiled.search(text.encode(errors="replace").decode()) is not None) == engines
        assert is_found(pattern, text) == engines


@given(st.text(alphabet=r"ab9zA-^$.*+?()[]{}|\/,:~&! 1", max_size=8), TEXTS)
def test_what_is_taken_for_simple_the_engine_takes_too(pattern: str, text: str) -> None:
    """Any text may be given as a pattern: what is no pattern of RE2 is not simple."""
    simple = regexps._simple(pattern)
    if simple is not None:
        engines = regexps._compiled(pattern).search(text.encode(errors="replace")) is not None
        assert (simple.compiled.search(text.encode(errors="replace").decode()) is not None) == engines


@pytest.mark.parametrize("form", ["{}", "\\{}", "[{}]", "[^{}]", "[a{}z]", "[a-{}]", "{}+", "[{}]*b", "^{}$"])
def test_each_character_is_simple_only_if_it_means_the_same(form: str) -> None:
    """All of ASCII, and some others: alone, escaped, in a class, repeated; against all of ASCII."""
    others = "\x85\xa0é\u0130\u2028\U0001f600"
    for character in [*map(chr, range(128)), *others]:
        pattern = form.format(character)
        simple = regexps._simple(pattern)
        if simple is not None:
            engine = regexps._compiled(pattern)
            for text in [*map(chr, range(128)), *others, character + "\n"]:
                assert (simple.compiled.search(text) is not None) == (engine.search(text.encode()) is not None)


def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without RE2 the message names the package to install."""
    monkeypatch.setitem(sys.modules, "re2", None)
    regexps.engine.cache_clear()
    regexps._compiled.cache_clear()
    with pytest.raises(MatchError, match="google-re2"):
        is_found("(a)+", "a")
    regexps.engine.cache_clear()


@given(st.text(alphabet="^$ab", max_size=5), st.text(alphabet="ab\n", max_size=6))
def test_literals_match_as_the_engine_would(pattern: str, text: str) -> None:
    """The short way for literals gives the answer of RE2."""
    assert is_found(pattern, text) == (regexps._compiled(pattern).search(text) is not None)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_pattern_is_answered_or_refused(pattern: str, text: str) -> None:
    """Only our error escapes, and a pattern that passes the check never fails."""
    try:
        check_pattern(pattern)
    except MatchError as error:
        assert "is not a regular expression" in str(error)  # noqa: PT017 - total: either outcome is right
    else:
        assert isinstance(is_found(pattern, text), bool)
