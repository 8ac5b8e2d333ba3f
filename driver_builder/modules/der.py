"""The part of DER that module signatures and certificates use: tag, length and value, read strictly.

Place in the flow: ``module_signature`` reads a PKCS#7 message and the signer's certificate with this, because
``cryptography`` has no public interface that returns the signers of one.

Source of the format: ITU-T X.690 (DER: lengths are definite; tags above 30 do not occur in what is read here).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

INTEGER, BIT_STRING, OCTET_STRING, OBJECT_ID, SEQUENCE, SET = 0x02, 0x03, 0x04, 0x06, 0x30, 0x31

_LONG_TAG = 0x1F
_LONG_LENGTH = 0x80
_LENGTH_BYTES = 4


class InvalidDer(ValueError):
    """The bytes are no DER, or not of the shape that was asked for."""


class Element(NamedTuple):
    """One element: its ``tag`` byte, its ``value``, and the ``whole`` of tag, length and value."""

    tag: int
    value: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that follow each other in ``data``, up to its end.

    Raises:
        InvalidDer: when one is cut off or has an indefinite length.
    """
    position = 0
    while position < len(data):
        element = _element(data, position)
        yield element
        position += len(element.whole)


def only(data: bytes, tag: int) -> Element:
    """The one element that ``data`` consists of.

    Raises:
        InvalidDer: it is missing, is another one, or something follows.
    """
    found = tuple(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        raise InvalidDer(f"expected one element with tag {tag:#04x}")
    return found[0]


def members(element: Element, *tags: int) -> tuple[Element, ...]:
    """The members of a constructed element, of which the first must have these tags.

    Raises:
        InvalidDer: when they have others.
    """
    found = tuple(elements(element.value))
    if tuple(member.tag for member in found[: len(tags)]) != tags:
        raise InvalidDer(f"expected members with the tags {', '.join(f'{tag:#04x}' for tag in tags)}")
    return found


def first(found: Sequence[Element], tag: int) -> Element | None:
    """The first element with that tag."""
    return next((element for element in found if element.tag == tag), None)


def integer(element: Element) -> int:
    """The value of an INTEGER."""
    return int.from_bytes(element.value, "big", signed=True)


def _element(data: bytes, start: int) -> Element:
    head = data[start : start + 2]
    if len(head) < len("TL") or head[0] & _LONG_TAG == _LONG_TAG:
        raise InvalidDer(f"no element at byte {start}")
    tag, length, body = head[0], head[1], start + 2
    if length >= _LONG_LENGTH:
        count = length - _LONG_LENGTH
        if not 0 < count <= _LENGTH_BYTES:
            raise InvalidDer(f"no definite length at byte {start}")
        length, body = int.from_bytes(data[body : body + count], "big"), body + count
    if body + length > len(data):
        raise InvalidDer(f"the element at byte {start} is cut off")
    return Element(tag, data[body : body + length], data[start : body + length])
