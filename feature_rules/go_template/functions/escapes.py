"""Go's ``html``, ``js`` and ``urlquery``: the printed arguments, escaped."""

from typing import Any

from feature_rules.go_template.data.formatting import sprint
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.quoting import is_printable, is_raw_byte
from feature_rules.go_template.data.values import to_bytes
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
