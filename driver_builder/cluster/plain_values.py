"""Frozen values to JSON and back, by the types of their fields: what a snapshot file has besides objects. Pure.

A dataclass becomes a mapping of its fields in camelCase, one of a union with its ``kind``; a sequence a list, a set a
sorted list, and a mapping with keys other than strings a list of ``key`` and ``value``.
"""

import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from driver_builder.api.spec_kinds import camel_case
from driver_builder.base.errors import ConfigurationError

_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}


def encode(hint: Any, value: Any) -> Any:  # noqa: PLR0911  # one return for each kind of type
    """Make plain data of a value of type ``hint``."""
    if (members := _members(hint)) is not None:
        if value is None or len(members) == 1:
            return None if value is None else encode(members[0], value)
        return {"kind": type(value).__name__, **encode(type(value), value)}
    if isinstance(hint, type) and is_dataclass(hint):
        return {camel_case(name): encode(of, getattr(value, name)) for name, of in hints(hint).items()}
    match typing.get_origin(hint), typing.get_args(hint):
        case (origin, (item, *_)) if origin in (tuple, Sequence):
            return [encode(item, entry) for entry in value]
        case (origin, (item,)) if origin is frozenset:
            return sorted((encode(item, entry) for entry in value), key=str)
        case (origin, (key, item)) if _is_text(key) and origin is not None:
            return {str(name): encode(item, entry) for name, entry in value.items()}
        case (_, (key, item)):
            return [{"key": encode(key, name), "value": encode(item, entry)} for name, entry in value.items()]
    if hint is bytes:
        return b64encode(value).decode()
    return value.value if isinstance(value, Enum) else str(value) if _is_text(hint) else value


def decode(hint: Any, data: Any, where: str) -> Any:  # noqa: PLR0911  # one return for each kind of type
    """Make the value of which :func:`encode` made ``data``; ``where`` names the place in the document.

    Raises:
        ConfigurationError: naming the place, what is there and what should be.
    """
    if (members := _members(hint)) is not None:
        if data is None and types.NoneType in typing.get_args(hint):
            return None
        if len(members) == 1:
            return decode(members[0], data, where)
        kinds = {member.__name__: member for member in members}
        kind = _of_type(data, dict, where).get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise ConfigurationError(f"{where}.kind: {kind!r} is not one of {', '.join(sorted(kinds))}")
        return decode(kinds[kind], {name: entry for name, entry in data.items() if name != "kind"}, where)
    if is_dataclass(hint):
        return _decode_fields(hint, _of_type(data, dict, where), where)
    match typing.get_origin(hint), typing.get_args(hint):
        case (origin, (item, *_)) if origin in (tuple, Sequence, frozenset):
            listed = enumerate(_of_type(data, list, where))
            return (frozenset if origin is frozenset else tuple)(decode(item, it, f"{where}[{n}]") for n, it in listed)
        case (origin, (key, item)) if _is_text(key) and origin is not None:
            entries = _of_type(data, dict, where).items()
            return {decode(key, name, where): decode(item, entry, f"{where}.{name}") for name, entry in entries}
        case (_, (key, item)):
            pairs = decode(tuple[dict[str, Any], ...], data, where)
            return {decode(key, pair.get("key"), f"{where}.key"): decode(item, pair.get("value"), f"{where}.value")
                    for pair in pairs}  # fmt: skip
    return data if hint is Any else _decode_text(hint, data, where)


def _decode_fields(hint: Any, data: Mapping[str, Any], where: str) -> Any:
    known = {camel_case(name): name for name in hints(hint)}
    if strange := sorted(str(name) for name in data.keys() - known.keys()):
        raise ConfigurationError(f"{where}: unknown field {strange[0]!r}: was it written by a newer driver-builder?")
    if missing := sorted(known.keys() - data.keys()):
        raise ConfigurationError(f"{where}.{missing[0]}: the field is missing")
    types_of = hints(hint)
    return hint(**{known[name]: decode(types_of[known[name]], entry, f"{where}.{name}")
                   for name, entry in data.items()})  # fmt: skip


def _decode_text(hint: Any, data: Any, where: str) -> Any:
    try:
        if hint is bytes:
            return b64decode(data, validate=True)
        if issubclass(hint, Enum):
            return hint(data)
        if _is_text(hint):
            return hint(_of_type(data, str, where))
        return float(_of_type(data, hint, where)) if hint is float else _of_type(data, hint, where)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigurationError(f"{where}: {_short(data)} cannot be read: {error}") from error


def _is_text(hint: Any) -> bool:
    """Return whether values of a type are texts, keys of drivers too, but no words of an enum."""
    return isinstance(hint, type) and issubclass(hint, str) and not issubclass(hint, Enum)


def _of_type(data: Any, wanted: type, where: str) -> Any:
    is_right = isinstance(data, _PLAIN.get(wanted, (wanted,))) and (wanted is bool or not isinstance(data, bool))
    if not is_right:
        raise ConfigurationError(f"{where}: {_short(data)} is not of type {wanted.__name__}")
    return data


def _short(data: Any) -> str:
    return repr(data)[:80]


def _members(hint: Any) -> list[Any] | None:
    """Return the types of a union besides None, and None of any other type."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return None
    return [member for member in typing.get_args(hint) if member is not types.NoneType]


@cache
def hints(hint: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields."""
    found = typing.get_type_hints(hint)
    return {item.name: found[item.name] for item in fields(hint)}
