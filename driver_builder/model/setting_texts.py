"""Reads texts of settings: each function returns the value, or raises a ValueError that says what to write. Pure."""

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from driver_builder.model import permissions, quantities
from driver_builder.model.defaults import Waits
from kube_api import names
from kube_api.node_policy import parse_account

Json = dict[str, Any]
_Word = TypeVar("_Word", bound=StrEnum)
_Number = TypeVar("_Number", int, float)

MIN_KEEP_DAYS, MAX_KEEP_DAYS = 14, 36500
"""The record of what is needed may have gaps of a week."""
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def optional(text: str) -> str | None:
    """Return the text; None for the empty one."""
    return text or None


def path(text: str) -> Path | None:
    """Return the path; None for the empty one."""
    return Path(text) if text else None


def is_on(text: str) -> bool:
    """Read ``true`` or ``1``; everything else is off."""
    return text.lower() in ("1", "true")


def is_off(text: str) -> bool:
    """Read the opposite."""
    return not is_on(text)


def words(text: str) -> tuple[str, ...]:
    """Read a list with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def choices(kind: type[StrEnum] | tuple[str, ...]) -> str:
    """Write what can be chosen from as help does."""
    return f"{{{','.join(kind)}}}"


def one_of(kind: type[_Word]) -> Callable[[str], _Word]:
    """Read a word of an enum."""

    def read(text: str) -> _Word:
        try:
            return kind(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not one of {', '.join(kind)}") from error

    return read


def _number(kind: type[_Number], is_right: Callable[[_Number], bool], wrong: str) -> Callable[[str], _Number]:
    def read(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError as error:
            raise ValueError(f"{text!r} {wrong}") from error
        if not is_right(value):
            raise ValueError(f"{text!r} {wrong}")
        return value

    return read


seconds = _number(float, lambda value: 0 < value < math.inf, "is not a number of seconds above 0")
count = _number(int, lambda value: value >= 1, "is not at least 1")
limit = _number(int, lambda value: value >= 0, "is neither a number of nodes nor 0 for no limit")
port = _number(int, lambda value: 0 <= value <= 65535, "is not a port")
days = _number(
    int,
    lambda value: MIN_KEEP_DAYS <= value <= MAX_KEEP_DAYS,
    f"is not a number of days from {MIN_KEEP_DAYS} to {MAX_KEEP_DAYS}",
)


def waits(text: str) -> Waits:
    """Read the three waits."""
    resync, first, longest = map(seconds, text.split(","))
    return Waits(resync, first, longest)


def namespaces(text: str) -> tuple[str, ...]:
    """Read names of namespaces in their order, each once."""
    if text.strip() == permissions.NOTHING:
        return ()
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"{name!r} is not a namespace: write NAME,... or {permissions.NOTHING}")
    return found


def objects(what: str) -> Callable[[str], frozenset[str]]:
    """Read names of objects with their namespaces; nothing at all, and the word for nothing, are none."""

    def read(text: str) -> frozenset[str]:
        found = words(text)
        for name in () if found == (permissions.NOTHING,) else found:
            if parse_account(name) is None:
                raise ValueError(f"{name!r} is not {what}: write NAMESPACE/NAME,... or {permissions.NOTHING}")
        return frozenset(found) - {permissions.NOTHING}

    return read


def network(text: str) -> str:
    """Read a mode of networks of an engine, or the name of one."""
    if not _NETWORK.fullmatch(text):
        raise ValueError(f"{text!r} is not a network: write host, bridge, none, or the name of one in the engine")
    return text


def size(text: str) -> str:
    """Read room on a disk."""
    if quantities.amount(text) < 1:
        raise ValueError(f"{text!r} is no room at all: write a quantity such as 20Gi")
    return text


def labels(text: str) -> Mapping[str, str]:
    """Read ``KEY=VALUE,...``."""
    pairs = [word.partition("=") for word in words(text)]
    for key, equals, value in pairs:
        if not equals or not names.is_qualified_name(key) or not names.is_label_value(value):
            raise ValueError(f"{key + equals + value!r} is not a label: write KEY=VALUE,...")
    return {key: value for key, _, value in pairs}


def tolerations(text: str) -> tuple[Json, ...]:
    """Read taints as kubectl writes them; a missing value or effect means all values or effects."""
    return tuple(map(_toleration, words(text)))


def _toleration(text: str) -> Json:
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    is_effect = effect in _EFFECTS if colon else True
    if not (is_effect and names.is_qualified_name(key) and names.is_label_value(value)):
        raise ValueError(
            f"{text!r} is not a taint: write KEY[=VALUE][:EFFECT],... with an effect of {', '.join(_EFFECTS)}"
        )
    toleration = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return toleration | ({"effect": effect} if colon else {})
