"""DER: what is read, and what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.modules.der import INTEGER, SEQUENCE, SET, InvalidDer, elements, first, integer, members, only
from tests.support.driver_builder.module_signing import der


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_what_is_written_is_read(values: list[bytes]) -> None:
    """DER that is encoded decodes to the same value, with short and long lengths."""
    sequence = only(der(SEQUENCE, *(der(INTEGER, value) for value in values)), SEQUENCE)
    assert [member.value for member in members(sequence)] == values


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("02", id="only a tag"),
        pytest.param("020101 02", id="something behind"),
        pytest.param("0202 01", id="cut off"),
        pytest.param("0280 0101 0000", id="indefinite"),
        pytest.param("0285 0000000001 01", id="a length of five bytes"),
        pytest.param("1f02 0101", id="a long tag"),
    ],
)
def test_what_is_no_der_is_refused(data: str) -> None:
    """Malformed DER is rejected; nothing is guessed."""
    with pytest.raises(InvalidDer):
        tuple(elements(bytes.fromhex(data)))


def test_shapes_are_asked_for() -> None:
    """A caller says which members it expects first."""
    sequence = only(bytes.fromhex("3006 020105 0201ff"), SEQUENCE)
    assert [integer(member) for member in members(sequence, INTEGER, INTEGER)] == [5, -1]
    assert first(members(sequence), SET) is None
    with pytest.raises(InvalidDer, match="0x31"):
        members(sequence, INTEGER, SET)
    with pytest.raises(InvalidDer, match="one element"):
        only(bytes.fromhex("020105 0201ff"), INTEGER)


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Every byte that is read is in an element, once."""
    with contextlib.suppress(InvalidDer):
        assert b"".join(element.whole for element in elements(data)) == data
