"""Sprig's ``wrap`` and ``wrapWith``: lines of a wanted length, counted in bytes."""

from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.values import from_bytes, to_bytes
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


@REGISTRY.function("wrap(int, string)", metered=True)
def _wrap(meter: Meter, width: int, text: str) -> str:
    """Break at spaces; a longer word keeps its line to itself."""
    return _wrapped(meter, width, "\n", text, breaks_words=False)


@REGISTRY.function("wrapWith(int, string, string)", metered=True)
def _wrap_with(meter: Meter, width: int, newline: str, text: str) -> str:
    """Break at spaces and inside longer words, with ``newline`` between lines."""
    return _wrapped(meter, width, newline or "\n", text, breaks_words=True)


def _wrapped(meter: Meter, width: int, newline: str, text: str, *, breaks_words: bool) -> str:
    meter.spend(len(text) // 8)
    raw = to_bytes(text)
    width = max(width, 1)
    lines: list[str] = []
    begin = 0
    while len(raw) - begin > width:
        if raw[begin : begin + 1] == b" ":
            begin += 1
            continue
        end, next_begin = _line_end(raw, begin, width, breaks_words)
        meter.allocate(len(newline) + 64)
        lines.append(from_bytes(raw[begin:end]))
        begin = next_begin
        if begin > len(raw):
            return newline.join(lines)
    return newline.join((*lines, from_bytes(raw[begin:])))


def _line_end(raw: bytes, begin: int, width: int, breaks_words: bool) -> tuple[int, int]:
    space = raw.rfind(b" ", begin, begin + width + 1)
    if space >= 0:
        return space, space + 1
    if breaks_words:
        return begin + width, begin + width
    space = raw.find(b" ", begin + width)
    return (space, space + 1) if space >= 0 else (len(raw), len(raw) + 1)
