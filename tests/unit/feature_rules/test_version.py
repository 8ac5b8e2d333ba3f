"""Numbers of conditions: what is one, and how they order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.errors import MatchError
from feature_rules.version import parse_integer, parse_leading_version, parse_version


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("-10", -10, id="negative"),
        pytest.param("+5", 5, id="plus sign"),
        pytest.param("007", 7, id="leading zeros are decimal"),
        pytest.param("9223372036854775807", (1 << 63) - 1, id="largest"),
        pytest.param("-9223372036854775808", -(1 << 63), id="smallest"),
    ],
)
def test_an_integer_is_read_as_go_reads_it(text: str, number: int) -> None:
    """Integers are decimal, with an optional sign."""
    assert parse_integer(text) == (number,)


@pytest.mark.parametrize(
    "text",
    ["", " 2", "2 ", "2\n", "2.0", "0x10", "1_000", "٣", "--1", "1e3", "9223372036854775808", "9" * 5000],
    ids=repr,
)
def test_anything_else_is_not_an_integer(text: str) -> None:
    """Neither blanks, other bases and digits, nor more than 64 bits."""
    with pytest.raises(MatchError, match="is not an integer"):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param("5", (5, 0, 0), id="major only"),
        pytest.param("5.4", (5, 4, 0), id="no patch"),
        pytest.param("v5.4.3", (5, 4, 3), id="with v"),
        pytest.param("05.004.00", (5, 4, 0), id="leading zeros"),
        pytest.param("5.4.0-rc1", (5, 4, 0), id="pre-release is dropped"),
        pytest.param("6.1.0-31-amd64", (6, 1, 0), id="Debian kernel"),
        pytest.param("6.1.0+meta.01", (6, 1, 0), id="build is dropped"),
        pytest.param("1.2-alpha.1+b", (1, 2, 0), id="both after two parts"),
    ],
)
def test_a_version_is_read_loosely(text: str, version: tuple[int, int, int]) -> None:
    """Missing parts are 0; what follows the core does not count."""
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("str", id="word"),
        pytest.param("-11", id="negative"),
        pytest.param("1.2.3.4", id="four parts"),
        pytest.param("1.", id="trailing dot"),
        pytest.param("1.2.3\n", id="line end"),
        pytest.param("V1", id="capital v"),
        pytest.param("6.5.0-100_1.x86_64", id="underscore"),
        pytest.param("1.2.3-01", id="zero-led number in the pre-release"),
        pytest.param("1.2.3-", id="empty pre-release"),
        pytest.param("18446744073709551616", id="65 bits"),
    ],
)
def test_anything_else_is_not_a_version(text: str) -> None:
    """The message shows the text and what a version looks like."""
    with pytest.raises(MatchError, match="is not a version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param("5.14.0-427.13.1.el9_4.x86_64", (5, 14, 0), id="RHEL"),
        pytest.param("5.10.226-214.880.amzn2.x86_64", (5, 10, 226), id="Amazon Linux"),
        pytest.param("6.12.41_deb13-amd64", (6, 12, 41), id="Debian 13 as a label value"),
        pytest.param("6.12.41+deb13-amd64", (6, 12, 41), id="Debian 13"),
        pytest.param("6.8.0-45-generic", (6, 8, 0), id="Ubuntu"),
        pytest.param("5.15.153.1-microsoft-standard-WSL2", (5, 15, 153), id="a fourth number"),
        pytest.param("6.6.30_1", (6, 6, 30), id="Void"),
        pytest.param("6.1rc2", (6, 1, 0), id="letters at once"),
        pytest.param("V1.09", (1, 9, 0), id="firmware with a capital v"),
        pytest.param("1.2.3-", (1, 2, 3), id="nothing after the dash"),
        pytest.param("7 (Core)", (7, 0, 0), id="blank"),
        pytest.param("v5", (5, 0, 0), id="with v"),
    ],
)
def test_the_version_that_a_text_begins_with(text: str, version: tuple[int, int, int]) -> None:
    """What a node reports has suffixes that no semantic version may have; its numbers count."""
    assert parse_leading_version(text) == version


@pytest.mark.parametrize(
    "text", ["", "str", "-11", " 5", "vv1", "18446744073709551616.1", "9" * 5000, "\u0663"], ids=repr
)
def test_a_text_that_begins_with_no_number_is_no_version(text: str) -> None:
    """Without a number, or with one of more than 64 bits, there is nothing to compare."""
    with pytest.raises(MatchError, match="is not a version"):
        parse_leading_version(text)


@given(st.text(max_size=40))
def test_reading_is_total(text: str) -> None:
    """Any text is a number, a version, or a MatchError."""
    for parse in (parse_integer, parse_version, parse_leading_version):
        try:
            assert all(isinstance(part, int) for part in parse(text))
        except MatchError as error:
            assert repr(text[:60]) in str(error)  # noqa: PT017 - total: either outcome is right
