"""Writes one value with one verb of Go's fmt and its flags; the counterpart of format strings in :mod:`formatting`."""

from typing import Any, NamedTuple

from feature_rules.go_template.data.float_text import format_float
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.quoting import can_be_raw, is_printable, quoted
from feature_rules.go_template.data.values import ANY, Uint8, Uint64, in_byte_order, to_bytes, type_of  # fmt: skip

_BASES = frozenset("dboOxX")
_WORD = 1 << 64
_LARGEST_CHARACTER = 0x10FFFF


class Flags(NamedTuple):
    """What stands between ``%`` and the verb.

    ``go_syntax``: ``%#v``, which is not the alternate form of anything. ``width``, ``precision``: None when not given.
    """

    alternate: bool = False
    zero: bool = False
    plus: bool = False
    minus: bool = False
    space: bool = False
    go_syntax: bool = False
    width: int | None = None
    precision: int | None = None

    def padded(self, text: str) -> str:
        """Fill ``text`` up to the width."""
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            return text
        return text + " " * missing if self.minus else ("0" if self.zero else " ") * missing + text


class Writer:
    """Collects text; the meter is asked before padding and digits are made."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._parts: list[str] = []

    def text(self) -> str:
        """Give everything written so far."""
        return "".join(self._parts)

    def write(self, text: str) -> None:
        """Add text as it is."""
        self._meter.allocate(len(text))
        self._parts.append(text)

    def value(self, value: Any, verb: str, flags: Flags) -> None:
        """Add ``value`` as ``%verb`` shows it."""
        if value is None:
            if verb in "vT":
                self._padded("<nil>", flags)
            else:
                self._bad(verb, value, flags)
        elif verb == "T":
            self._padded(_text(type_of(value), flags), flags)
        else:
            self._element(value, verb, flags)

    def _element(self, value: Any, verb: str, flags: Flags) -> None:
        match value:
            case None:
                self.write(f"{ANY}(nil)" if flags.go_syntax else "<nil>")
            case list():
                self._list(value, verb, flags)
            case dict():
                self._map(value, verb, flags)
            case bool():
                self._known(("true" if value else "false") if verb in "tv" else None, value, verb, flags)
            case str():
                self._meter.spend(0 if verb in "vs" else len(value) // 8)
                self._known(_string(value, verb, flags), value, verb, flags)
            case int():
                self._meter.allocate((flags.width or 0) + (flags.precision or 0))
                self._integer(value, verb, flags)
            case float():
                self._meter.allocate((flags.width or 0) + (flags.precision or 0))
                self._float(value, verb, flags)
            case _:
                self._known(_string(value.text, verb, flags), value, verb, flags)

    def _list(self, values: list[Any], verb: str, flags: Flags) -> None:
        self.write(f"{type_of(values)}{{" if flags.go_syntax else "[")
        for place, value in enumerate(values):
            if place:
                self.write(", " if flags.go_syntax else " ")
            self._element(value, verb, flags)
        self.write("}" if flags.go_syntax else "]")

    def _map(self, values: dict[str, Any], verb: str, flags: Flags) -> None:
        self.write(f"{type_of(values)}{{" if flags.go_syntax else "map[")
        for place, key in enumerate(sorted(values, key=in_byte_order)):
            if place:
                self.write(", " if flags.go_syntax else " ")
            self._element(key, verb, flags)
            self.write(":")
            self._element(values[key], verb, flags)
        self.write("}" if flags.go_syntax else "]")

    def _known(self, shown: str | None, value: Any, verb: str, flags: Flags) -> None:
        if shown is None:
            self._bad(verb, value, flags)
        else:
            self._padded(shown, flags)

    def _padded(self, text: str, flags: Flags) -> None:
        self._meter.allocate(max(flags.width or 0, len(text)))
        self._parts.append(flags.padded(text))

    def _bad(self, verb: str, value: Any, flags: Flags) -> None:
        self.write(f"%!{verb}(")
        if value is None:
            self.write("<nil>")
        else:
            self.write(f"{type_of(value)}=")
            self._element(value, "v", flags)
        self.write(")")

    def _integer(self, value: int, verb: str, flags: Flags) -> None:
        shown = _integer(value, verb, flags)
        if shown is None:
            self._bad(verb, value, flags)
        else:
            self._padded(shown, flags if verb in "cq" else flags._replace(zero=False))

    def _float(self, value: float, verb: str, flags: Flags) -> None:
        shown = _float(value, verb, flags)
        if shown is None:
            self._bad(verb, value, flags)
            return
        is_number = shown[-1] not in "fN"
        sign, digits = (shown[0], shown[1:]) if shown[0] in "+- " else ("", shown)
        if is_number and flags.zero and sign and (flags.width or 0) > len(shown):
            self._parts.append(sign + flags._replace(width=(flags.width or 0) - 1).padded(digits))
            return
        self._padded(shown, flags if is_number else flags._replace(zero=False))


def _text(text: str, flags: Flags) -> str:
    return text if flags.precision is None else text[: flags.precision]


def _string(text: str, verb: str, flags: Flags) -> str | None:
    match verb:
        case "v":
            return quoted(_text(text, flags)) if flags.go_syntax else _text(text, flags)
        case "s":
            return _text(text, flags)
        case "q":
            text = _text(text, flags)
            if flags.alternate and can_be_raw(text):
                return f"`{text}`"
            return quoted(text, only_ascii=flags.plus)
        case "x" | "X":
            return _hex_bytes(text, verb, flags)
        case _:
            return None


def _hex_bytes(text: str, verb: str, flags: Flags) -> str:
    raw = to_bytes(text)[: flags.precision]
    digits = [f"{byte:02{verb}}" for byte in raw]
    prefix = f"0{verb}" if flags.alternate and raw else ""
    if flags.space:
        return " ".join(prefix + pair for pair in digits)
    return prefix + "".join(digits)


def _integer(value: int, verb: str, flags: Flags) -> str | None:
    if verb == "v":
        is_go_unsigned = flags.go_syntax and isinstance(value, Uint8 | Uint64)
        return _digits(value, "x", flags._replace(alternate=True)) if is_go_unsigned else _digits(value, "d", flags)
    if verb in _BASES:
        return _digits(value, verb, flags)
    if verb == "U":
        return _code_point(value, flags)
    quoted_or_not = {"c": _character(value), "q": quoted(_character(value), "'", only_ascii=flags.plus)}
    return quoted_or_not.get(verb)


def _digits(value: int, verb: str, flags: Flags) -> str:
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    least = flags.precision
    if least == 0 and value == 0:
        return ""
    if least is None and flags.zero and flags.width is not None:
        least = flags.width - len(sign)
    digits = format(abs(int(value)), "o" if verb == "O" else verb).rjust(least or 0, "0")
    if flags.alternate and not (verb in "oO" and digits.startswith("0")):
        digits = {"b": "0b", "o": "0", "O": "0", "x": "0x", "X": "0X"}.get(verb, "") + digits
    return sign + ("0o" if verb == "O" else "") + digits


def _character(value: int) -> str:
    is_character = 0 <= value <= _LARGEST_CHARACTER and not 0xD800 <= value < 0xE000
    return chr(value) if is_character else "\ufffd"


def _code_point(value: int, flags: Flags) -> str:
    shown = f"U+{value % _WORD:0{max(flags.precision or 0, 4)}X}"
    if flags.alternate and 0 <= value <= _LARGEST_CHARACTER and is_printable(_character(value)):
        return f"{shown} '{_character(value)}'"
    return shown


def _float(value: float, verb: str, flags: Flags) -> str | None:
    if verb not in tuple("veEfFgGxXb"):
        return None
    style = {"v": "g", "F": "f"}.get(verb, verb)
    precision = flags.precision if flags.precision is not None else 6 if style in "eEf" else -1
    text = format_float(value, style, precision)
    if text == "NaN":
        return f"+{text}" if flags.plus else f" {text}" if flags.space else text
    if text[0] not in "+-":
        text = f"+{text}"
    if flags.alternate and style != "b" and not text.endswith("Inf"):
        text = _with_point(text, style, precision)
    if text[0] == "+" and not flags.plus and not (text.endswith("Inf") and not flags.space):
        return f" {text[1:]}" if flags.space else text[1:]
    return text


def _with_point(text: str, style: str, precision: int) -> str:
    """Keep the decimal point and the zeros behind it, as ``#`` wants; ``text`` begins with its sign."""
    mark = "p" if style in "xX" else "e"
    at = text.lower().find(mark)
    body, tail = (text[:at], text[at:]) if at >= 0 else (text, "")
    wanted = (6 if precision == -1 else precision) if style in "gGx" else 0
    counted = body[1:].replace(".", "")
    wanted -= len(counted.lstrip("0"))
    if "." not in body:
        wanted -= body[1:] == "0"
        body += "."
    return body + "0" * max(wanted, 0) + tail
