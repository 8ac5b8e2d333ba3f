"""Durations as Go writes them (``time.ParseDuration``): ``60s``, ``1m30s``, ``1.5h``, ``500ms``."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+)", re.ASCII)

_LONGEST = 2**63 * 1e-9
"""Seconds; Go counts nanoseconds in 64 bits."""


def parse_duration(text: str) -> float:
    """Read a duration into seconds.

    Raises:
        ValueError: when the text is not a duration; a number without a unit is one only when it is 0.
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError(f"{text[:40]!r} is not a duration such as 60s, 1m30s or 1h")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(whole[2]))
    if seconds >= _LONGEST:
        raise ValueError(f"{text[:40]!r} is longer than 292 years")
    return -seconds if whole[1] == "-" else seconds
