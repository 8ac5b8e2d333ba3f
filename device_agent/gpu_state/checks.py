"""Checks of plain values that came as JSON: each takes a value and its place, and returns it or raises StateInvalid."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from device_agent.errors import StateInvalid
from kube_api.text import MAX_MESSAGE, printable

T = TypeVar("T")
Check = Callable[[object, str], T]

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]*")
_PCI_ID = re.compile(r"0x[0-9a-f]{8}")
_PATH = re.compile(r"/dev/[A-Za-z0-9/_:-]+")
_POD = re.compile(  # a label of DNS, and a name of DNS
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
_LONGEST_WORD = 128
_LONGEST_NAME = 253
_LONGEST_POD = 63 + 1 + _LONGEST_NAME
MOST = 2**53
"""The largest number: JSON's readers keep no larger one exactly."""


def is_word(value: str) -> bool:
    """Return whether a text may be a UUID, a PCI address, a version or the like."""
    return len(value) <= _LONGEST_WORD and _WORD.fullmatch(value) is not None


def word(value: object, place: str) -> str:
    """Check a UUID, a PCI address, a version or the like; or an empty text."""
    if type(value) is not str or not (value == "" or is_word(value)):
        raise _wrong(value, place, "is not a short word")
    return value


def name(value: object, place: str) -> str:
    """Check such a word, which is not empty."""
    if not (found := word(value, place)):
        raise StateInvalid(f"{place} is empty")
    return found


def pci_id(value: object, place: str) -> str:
    """Check device and vendor of a PCI device; or an empty text."""
    if type(value) is not str or not (value == "" or _PCI_ID.fullmatch(value)):
        raise _wrong(value, place, "is not device and vendor of a PCI device, such as 0x20b010de")
    return value


def is_pod(value: str) -> bool:
    """Return whether a text may be NAMESPACE/NAME of a pod."""
    return (
        len(value) <= _LONGEST_POD
        and _POD.fullmatch(value) is not None
        and len(value.partition("/")[2]) <= _LONGEST_NAME
    )


def pod(value: object, place: str) -> str:
    """Check NAMESPACE/NAME of a pod."""
    if type(value) is not str or not is_pod(value):
        raise _wrong(value, place, "is not NAMESPACE/NAME of a pod")
    return value


def text(value: object, place: str) -> str:
    """Check a message for people: one printable line."""
    if type(value) is not str or printable(value, MAX_MESSAGE) != value:
        raise _wrong(value, place, "is not a short printable text")
    return value


def path(value: object, place: str) -> str:
    """Check the path of a device node."""
    if type(value) is not str or len(value) > _LONGEST_WORD or not _PATH.fullmatch(value):
        raise _wrong(value, place, "is not a path below /dev")
    return value


def flag(value: object, place: str) -> bool:
    """Check a boolean."""
    if type(value) is not bool:
        raise _wrong(value, place, "is not true or false")
    return value


def integer(least: int = 0, most: int = MOST) -> Check[int]:
    """Make a check of an integer; true and false are none."""

    def check(value: object, place: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _wrong(value, place, f"is not an integer from {least} to {most}")
        return value

    return check


def seconds(value: object, place: str) -> float:
    """Check a time since the boot."""
    if type(value) not in (int, float) or not 0 <= value <= MOST:  # type: ignore[operator] # a number, as just checked
        raise _wrong(value, place, "is not a number of seconds")
    return float(value)  # type: ignore[arg-type] # see above


def number(least: float = -MOST, most: float = MOST) -> Check[float]:
    """Make a check of a number, of which an integer stays one."""

    def check(value: object, place: str) -> float:
        if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator] # as with seconds
            raise _wrong(value, place, f"is not a number from {least} to {most}")
        return value  # type: ignore[return-value] # see above

    return check


def one_of(*words: str) -> Check[str]:
    """Make a check of a closed set of words."""

    def check(value: object, place: str) -> str:
        if type(value) is not str or value not in words:
            raise _wrong(value, place, f"is not one of {', '.join(words)}")
        return value

    return check


def optional(check: Check[T]) -> Check[T | None]:
    """Make a check that allows null besides."""
    return lambda value, place: None if value is None else check(value, place)


def several(check: Check[T], most: int) -> Check[tuple[T, ...]]:
    """Make a check of a list with at most so many entries."""

    def check_all(value: object, place: str) -> tuple[T, ...]:
        if type(value) is not list or len(value) > most:
            raise _wrong(value, place, f"is not a list of at most {most}")
        return tuple(check(one, f"{place}[{number}]") for number, one in enumerate(value))

    return check_all


def record(kind: Callable[..., T], fields: Mapping[str, Check[object]]) -> Check[T]:
    """Make a check of an object that has just these fields."""

    def check(value: object, place: str) -> T:
        if type(value) is not dict or value.keys() != fields.keys():
            raise _wrong(value, place, f"is not an object with {', '.join(fields)}")
        return kind(**{name: one(value[name], f"{place}.{name}") for name, one in fields.items()})

    return check


def _wrong(value: object, place: str, what: str) -> StateInvalid:
    return StateInvalid(f"{place} {what}: {printable(repr(value), 80)}")
