"""String and character constants between quotes, as Go's strconv.Unquote reads them. Pure."""

import re

from feature_rules.go_template.data.values import from_bytes, to_bytes

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\\'\"])|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))",
    re.DOTALL,
)


def unquote(literal: str) -> str | None:
    """Take the quotes and escapes off a ``"..."`` or `` `...` `` constant; None when an escape is wrong."""
    body = literal[1:-1]
    if literal[0] == "`":
        return body.replace("\r", "")
    if "\\" not in body:
        return body
    parts: list[bytes] = []
    position = 0
    while position < len(body):
        backslash = body.find("\\", position)
        if backslash < 0:
            backslash = len(body)
        parts.append(to_bytes(body[position:backslash]))
        if backslash == len(body):
            break
        found = _ESCAPE.match(body, backslash)
        value = None if found is None else _escaped(found, '"')
        if found is None or value is None:
            return None
        parts.append(value)
        position = found.end()
    return from_bytes(b"".join(parts))


def character(literal: str) -> int | None:
    """Read the code point of a ``'x'`` constant; None when it is not exactly one."""
    body = literal[1:-1]
    if body.startswith("\\"):
        found = _ESCAPE.fullmatch(body)
        return None if found is None else _code_point(found, "'")
    if len(body) != 1:
        return None
    return 0xFFFD if "\ud800" <= body <= "\udfff" else ord(body)


def _escaped(found: re.Match[str], quote: str) -> bytes | None:
    code = _code_point(found, quote)
    if code is None:
        return None
    return bytes((code,)) if found["byte"] or found["octal"] else chr(code).encode()


def _code_point(found: re.Match[str], quote: str) -> int | None:
    if (simple := found["simple"]) is not None:
        return _SIMPLE.get(simple) or (ord(quote) if simple == quote else None)
    if found["octal"]:
        code = int(found["octal"], 8)
        return code if code < 256 else None
    code = int(found["byte"] or found["short"] or found["long"], 16)
    is_surrogate = 0xD800 <= code < 0xE000
    return None if code > 0x10FFFF or (is_surrogate and not found["byte"]) else code
