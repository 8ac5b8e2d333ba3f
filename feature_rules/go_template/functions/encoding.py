"""Text in other forms: Go's ``html``, ``js`` and ``urlquery``; sprig's base64, base32, SHA and Adler-32.

What does not decode becomes Go's message, as text.
"""

from binascii import a2b_base64, b2a_base64
from typing import Any

from feature_rules.go_template.data.formatting import sprint
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.quoting import is_printable, is_raw_byte
from feature_rules.go_template.data.values import from_bytes, to_bytes
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SCRIPT = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}
_PLAIN_IN_URL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_LONGEST_ESCAPE = 6


def _printed(meter: Meter, values: tuple[Any, ...]) -> str:
    shown = ("<no value>" if value is None else value for value in values)
    printed = values[0] if len(values) == 1 and isinstance(values[0], str) else sprint(meter, *shown)
    meter.allocate(len(printed) * _LONGEST_ESCAPE)
    return printed


@REGISTRY.function("html(...any)", metered=True, is_deep=True)
def _html(meter: Meter, *values: Any) -> str:
    return _printed(meter, values).translate(_HTML)


@REGISTRY.function("js(...any)", metered=True, is_deep=True)
def _script(meter: Meter, *values: Any) -> str:
    return "".join(map(_in_script, _printed(meter, values)))


def _in_script(character: str) -> str:
    if character in _SCRIPT:
        return _SCRIPT[character]
    if character < " ":
        return f"\\u00{ord(character):02X}"
    return (
        character
        if character < "\x80" or is_printable(character) or is_raw_byte(character)
        else f"\\u{ord(character):04X}"
    )


@REGISTRY.function("urlquery(...any)", metered=True, is_deep=True)
def _in_query(meter: Meter, *values: Any) -> str:
    return "".join(_in_url(byte) for byte in to_bytes(_printed(meter, values)))


def _in_url(byte: int) -> str:
    if byte in _PLAIN_IN_URL:
        return chr(byte)
    return "+" if byte == 0x20 else f"%{byte:02X}"


_BASE64_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@REGISTRY.function("b64dec(string)")
def _from_base64(text: str) -> str:
    raw = to_bytes(text).replace(b"\r", b"").replace(b"\n", b"")
    body = raw.rstrip(b"=")
    padding = len(raw) - len(body)
    is_right = len(raw) % 4 == 0 and padding <= 2 and not body.translate(None, _BASE64_DIGITS)
    return from_bytes(a2b_base64(raw)) if is_right else "illegal base64 data"


@REGISTRY.function("b32enc(string)")
def _to_base32(text: str) -> str:
    import base64  # noqa: PLC0415 - few templates need it

    return base64.b32encode(to_bytes(text)).decode()


@REGISTRY.function("b32dec(string)")
def _from_base32(text: str) -> str:
    import base64  # noqa: PLC0415 - few templates need it

    try:
        return from_bytes(base64.b32decode(to_bytes(text).replace(b"\r", b"").replace(b"\n", b"")))
    except ValueError:
        return "illegal base32 data"


def _sum(algorithm: str, text: str) -> str:
    import hashlib  # noqa: PLC0415 - few templates need it

    return hashlib.new(algorithm, to_bytes(text), usedforsecurity=False).hexdigest()


@REGISTRY.function("adler32sum(string)")
def _adler32(text: str) -> str:
    from zlib import adler32  # noqa: PLC0415 - few templates need it

    return str(adler32(to_bytes(text)))


REGISTRY.add("b64enc(string)", lambda text: b2a_base64(to_bytes(text), newline=False).decode())
REGISTRY.add("sha1sum(string)", lambda text: _sum("sha1", text))
REGISTRY.add("sha256sum(string)", lambda text: _sum("sha256", text))
REGISTRY.add("sha512sum(string)", lambda text: _sum("sha512", text))
