"""Protocol buffers' wire format, as far as the kubelet's API needs it: varints, strings, messages, maps of strings.

A message is a frozen dataclass with ``FIELDS``. ``protobuf`` and ``grpcio`` would add 14 MiB to the resident process.
Encoding: https://protobuf.dev/programming-guides/encoding/. Fields are written by number, keys of maps are sorted;
unknown fields are skipped, as a newer kubelet may send some.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeVar

from device_agent.errors import MalformedMessage

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_SIGN, _RANGE = 1 << 63, 1 << 64


class Type(Enum):
    """Types of fields that are no messages."""

    STRING = "string"
    BOOL = "bool"
    INTEGER = "int64"
    MAP = "map<string, string>"


class Field(NamedTuple):
    """One field: its number, its name in the dataclass, and the type, which is a message's class or a scalar."""

    number: int
    name: str
    type: "Type | type[Message]"
    repeated: bool = False


class Message:
    """What can be sent: a dataclass that says which fields it has."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]] = ()


Some = TypeVar("Some", bound=Message)


def encode(message: Message) -> bytes:
    """Write a message; fields with their default value are left out."""
    return b"".join(
        part for field in sorted(message.FIELDS) for part in _encode_field(field, getattr(message, field.name))
    )


def _encode_field(field: Field, value: Any) -> Iterator[bytes]:
    if field.type is Type.MAP:
        for key in sorted(value):
            yield _encode_bytes(field.number, _encode_pair(key, value[key]))
    elif field.repeated:
        for item in value:
            yield _encode_value(field, item)
    elif value:
        yield _encode_value(field, value)


def _encode_pair(key: str, value: str) -> bytes:
    # Of a map's entry both fields are written, empty or not.
    return _encode_bytes(1, key.encode()) + _encode_bytes(2, value.encode())


def _encode_value(field: Field, value: Any) -> bytes:
    match field.type:
        case Type.STRING:
            return _encode_bytes(field.number, value.encode())
        case Type.BOOL | Type.INTEGER:
            return _encode_varint(field.number << 3 | _VARINT) + _encode_varint(int(value) % _RANGE)
    return _encode_bytes(field.number, encode(value))


def _encode_bytes(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode(content: bytes, kind: type[Some]) -> Some:
    """Read a message.

    Raises:
        MalformedMessage: when the bytes are not in the format, or a text is not UTF-8.
    """
    known = {field.number: field for field in kind.FIELDS}
    values: dict[str, Any] = {}
    for number, value in _parts(content):
        field = known.get(number)
        if field is None:
            continue
        if field.type is Type.MAP:
            values.setdefault(field.name, {}).update([_decode_pair(value)])
        elif field.repeated:
            values.setdefault(field.name, []).append(_decode_value(field, value))
        else:
            values[field.name] = _decode_value(field, value)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _decode_value(field: Field, value: int | bytes) -> Any:
    if field.type in (Type.BOOL, Type.INTEGER):
        if not isinstance(value, int):
            raise MalformedMessage(f"field {field.name} is not a number")
        return value != 0 if field.type is Type.BOOL else value - _RANGE if value >= _SIGN else value
    if not isinstance(value, bytes):
        raise MalformedMessage(f"field {field.name} is a number")
    if not isinstance(field.type, Type):
        return decode(value, field.type)
    return _text(value)


def _decode_pair(value: int | bytes) -> tuple[str, str]:
    if not isinstance(value, bytes):
        raise MalformedMessage("an entry of a map is a number")
    entry: Mapping[int, int | bytes] = dict(_parts(value))
    key, content = entry.get(1, b""), entry.get(2, b"")
    if not isinstance(key, bytes) or not isinstance(content, bytes):
        raise MalformedMessage("an entry of a map has a number")
    return _text(key), _text(content)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage("a string is not UTF-8") from error


def _parts(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Split a message into numbers of fields and values: varints as they are, everything else as bytes."""
    offset = 0
    while offset < len(content):
        key, offset = _decode_varint(content, offset)
        kind = key & 7
        if kind == _VARINT:
            value, offset = _decode_varint(content, offset)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, offset = _decode_varint(content, offset)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMessage(f"there is no wire type {kind}")
        if length > len(content) - offset:
            raise MalformedMessage("it ends within a field")
        yield key >> 3, content[offset : offset + length]
        offset += length


def _decode_varint(content: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(content[offset : offset + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value % _RANGE, offset + position + 1
    raise MalformedMessage("a number does not end")
