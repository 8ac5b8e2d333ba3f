"""Frozen values to plain data and back, by the types of their fields: what JSON and YAML can hold. Pure.

A dataclass becomes a mapping of its fields in camelCase (a spec: of a ``FlatSpec``); a field that was renamed keeps its
key as ``metadata["document"]``. A dataclass of a union also has its ``kind``. A sequence becomes a list, a set a sorted
list, and a mapping with keys other than strings a list of ``key`` and ``value``. User and password are removed from
every URL: documents are shared.
"""

import re
import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

import re2

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.flat_spec import FlatSpec, flattened, nested
from driver_builder.api.mapping_settings import Pattern, compiled
from driver_builder.base.errors import ConfigurationError, InvalidDriver
from driver_builder.model.driver_key import DriverKey

_USER_OF_A_URL = re.compile(r"(?<=://)[^/@\s]+@")
_RENAMED = {"Unauthorised": "Unauthorized"}
"""Kinds that earlier versions wrote under another name."""
_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), DriverKey: (str,), bool: (bool,), int: (int,), float: (int, float)}
_TEXTS = (str, DriverKey)


def encode(hint: Any, value: Any) -> Any:  # noqa: PLR0911  # one return for each kind of type
    """Make plain data of a value of type ``hint``."""
    if hint is Any:
        return _without_users(value)
    if _is_union(hint):
        return _encode_member(hint, value)
    if hint is InvalidDriver:
        return {"message": _without_users(str(value))}
    if hint is DriverSpec:
        return encode(FlatSpec, flattened(value))
    if hint is Pattern:
        return value.pattern
    if hint is bytes:
        return b64encode(value).decode()
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return {_key(item): encode(hints[item.name], getattr(value, item.name)) for item in fields(hint)}
    match typing.get_origin(hint), typing.get_args(hint):
        case (origin, (item, *_)) if origin in (tuple, Sequence):
            return [encode(item, entry) for entry in value]
        case (origin, (item,)) if origin is frozenset:
            return sorted(encode(item, entry) for entry in value)
        case (origin, (key, item)) if key in _TEXTS and origin is not None:
            return {str(name): encode(item, entry) for name, entry in value.items()}
        case (_, (key, item)):
            return [{"key": encode(key, name), "value": encode(item, entry)} for name, entry in value.items()]
    return value.value if isinstance(value, Enum) else _without_users(value)


def decode(hint: Any, data: Any, where: str) -> Any:  # noqa: PLR0911  # one return for each kind of type
    """Make the value of which :func:`encode` made ``data``; ``where`` names the place in the document.

    Raises:
        ConfigurationError: naming the place, what is there and what should be.
    """
    if hint is Any:
        return data
    if _is_union(hint):
        return _decode_member(hint, data, where)
    if hint is InvalidDriver:
        return InvalidDriver(_take(_mapping(data, where), "message", str, where))
    if hint is DriverSpec:
        return nested(decode(FlatSpec, data, where))
    if hint is Pattern or hint is bytes or (isinstance(hint, type) and issubclass(hint, Enum)):
        return _decode_text(hint, data, where)
    if is_dataclass(hint):
        return _decode_dataclass(hint, _mapping(data, where), where)
    match typing.get_origin(hint), typing.get_args(hint):
        case (origin, (item, *_)) if origin in (tuple, Sequence, frozenset):
            made = (decode(item, entry, f"{where}[{number}]") for number, entry in enumerate(_list(data, where)))
            return frozenset(made) if origin is frozenset else tuple(made)
        case (origin, (key, item)) if key in _TEXTS and origin is not None:
            return {key(_text(name, where)): decode(item, entry, f"{where}.{name}")
                    for name, entry in _mapping(data, where).items()}  # fmt: skip
        case (_, (key, item)):
            return dict(_decode_entry(key, item, entry, f"{where}[{number}]")
                        for number, entry in enumerate(_list(data, where)))  # fmt: skip
    return _decode_plain(hint, data, where)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def _members(hint: Any) -> tuple[list[Any], bool]:
    """Return the types of a union besides None, and whether a ``kind`` must distinguish them."""
    members = [member for member in typing.get_args(hint) if member is not types.NoneType]
    return members, len(members) > 1


def _encode_member(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    members, by_kind = _members(hint)
    if not by_kind:
        return encode(members[0], value)
    return {"kind": type(value).__name__, **encode(type(value), value)}


def _decode_member(hint: Any, data: Any, where: str) -> Any:
    members, by_kind = _members(hint)
    if data is None and types.NoneType in typing.get_args(hint):
        return None
    if not by_kind:
        return decode(members[0], data, where)
    entry = dict(_mapping(data, where))
    kinds = {member.__name__: member for member in members}
    kind = _take(entry, "kind", str, where)
    kind = _RENAMED.get(kind, kind)
    if kind not in kinds:
        raise ConfigurationError(f"{where}.kind: {kind!r} is not one of {', '.join(sorted(kinds))}")
    del entry["kind"]
    return decode(kinds[kind], entry, where)


def _decode_dataclass(hint: Any, data: Mapping[str, Any], where: str) -> Any:
    hints = _hints(hint)
    known = {_key(item): item for item in fields(hint)}
    if strange := sorted(str(name) for name in data.keys() - known.keys()):
        raise ConfigurationError(f"{where}: unknown field {strange[0]!r}: was it written by a newer driver-builder?")
    values = {}
    for name, item in known.items():
        if name in data:
            values[item.name] = decode(hints[item.name], data[name], f"{where}.{name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigurationError(f"{where}.{name}: the field is missing")
    return hint(**values)


def _decode_entry(key: Any, item: Any, data: Any, where: str) -> tuple[Any, Any]:
    entry = _mapping(data, where)
    return (
        decode(key, _take(entry, "key", object, where), f"{where}.key"),
        decode(item, _take(entry, "value", object, where), f"{where}.value"),
    )


def _decode_text(hint: Any, data: Any, where: str) -> Any:
    text = _text(data, where)
    try:
        if hint is Pattern:
            return compiled(text)
        return b64decode(text, validate=True) if hint is bytes else hint(text)
    except (ValueError, re2.error) as error:
        raise ConfigurationError(f"{where}: {text!r} cannot be read: {error}") from error


def _decode_plain(hint: Any, data: Any, where: str) -> Any:
    right = isinstance(data, _PLAIN[hint]) and (hint is bool or not isinstance(data, bool))
    if not right:
        raise ConfigurationError(f"{where}: {data!r} is not of type {hint.__name__}")
    try:
        return hint(data) if hint in (float, DriverKey) else data
    except OverflowError as error:
        raise ConfigurationError(f"{where}: {data!r} is too large") from error


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ConfigurationError(f"{where}: {_short(data)} is not a mapping")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise ConfigurationError(f"{where}: {_short(data)} is not a list")
    return data


def _text(data: Any, where: str) -> str:
    if not isinstance(data, str):
        raise ConfigurationError(f"{where}: {_short(data)} is not a string")
    return data


def _take(data: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    if not isinstance(data.get(name, MISSING), kind) or name not in data:
        raise ConfigurationError(f"{where}.{name}: the field is missing, or is not a {kind.__name__}")
    return data[name]


def _short(data: Any) -> str:
    return repr(data)[:80]


def _without_users(value: Any) -> Any:
    """Remove user and password from every URL, at any depth."""
    if isinstance(value, str):
        return _USER_OF_A_URL.sub("", value)
    if isinstance(value, dict):
        return {key: _without_users(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_users(entry) for entry in value]
    return value


@cache
def _hints(hint: Any) -> dict[str, Any]:
    return typing.get_type_hints(hint)


def _key(item: Field[Any]) -> str:
    """Return the key of a field in a document."""
    name: str = item.metadata.get("document", item.name)
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
