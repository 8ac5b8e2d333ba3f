"""Floats as text in Go's formats: ``e``, ``f``, ``g``, ``x`` and ``b``. Pure.

The shortest digits that read back as the same number are those of Python's ``repr``.
"""

import math

_MANTISSA_BITS = 52
_SHORTEST = -1
_SWITCHES_AT = 6


def format_float(value: float, verb: str, precision: int = _SHORTEST) -> str:
    """Write ``value`` with Go's strconv format ``verb`` (e, E, f, g, G, x, X, b); precision -1 is as short as exact."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    value = abs(value)
    if math.isinf(value):
        return f"{sign or '+'}Inf"
    match verb:
        case "e" | "E":
            body = _exponential(value, precision)
        case "f":
            body = _plain(value, precision)
        case "g" | "G":
            body = _general(value, precision)
        case "b":
            body = _binary(value)
        case _:
            body = _hexadecimal(value, precision)
    return sign + (body.upper() if verb in "EGX" else body)


def _shortest_digits(value: float) -> tuple[str, int]:
    """Give the digits and the place of the point before them: 0.00123 is ("123", -2)."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), point if digits.rstrip("0") else 0


def _exponential(value: float, precision: int) -> str:
    if precision != _SHORTEST:
        return _two_digit_exponent(f"{value:.{precision}e}")
    digits, point = _shortest_digits(value)
    digits = digits or "0"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return _two_digit_exponent(f"{digits[0]}{fraction}e{(point - 1 if value else 0):+d}")


def _two_digit_exponent(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].rjust(2, '0')}"


def _plain(value: float, precision: int) -> str:
    if precision != _SHORTEST:
        return f"{value:.{precision}f}"
    digits, point = _shortest_digits(value)
    if point <= 0:
        return f"0.{'0' * -point}{digits}" if digits else "0"
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{whole}.{fraction}" if fraction else whole


def _general(value: float, precision: int) -> str:
    if precision == _SHORTEST:
        exponent = _shortest_digits(value)[1] - 1 if value else 0
        is_plain = -4 <= exponent < _SWITCHES_AT
        return _plain(value, _SHORTEST) if is_plain else _exponential(value, _SHORTEST)
    text = _two_digit_exponent(f"{value:.{max(precision, 1) - 1}e}")
    mantissa, _, power = text.partition("e")
    digits = mantissa.replace(".", "").rstrip("0") or "0"
    exponent = int(power)
    limit = max(precision, 1)
    if limit > len(digits) >= exponent + 1:
        limit = len(digits)
    if -4 <= exponent < limit:
        return f"{value:.{max(len(digits) - exponent - 1, 0)}f}"
    return _two_digit_exponent(f"{value:.{len(digits) - 1}e}")


def _hexadecimal(value: float, precision: int) -> str:
    mantissa, exponent = _mantissa(value)
    if precision == _SHORTEST:
        digits = f"{mantissa:014x}"
        whole, fraction = digits[0], digits[1:].rstrip("0")
    else:
        kept = min(precision, 13)
        shift = 4 * (13 - kept)
        rounded, dropped = mantissa >> shift, mantissa & ((1 << shift) - 1)
        half = 1 << shift >> 1
        rounded += dropped > half or (dropped == half and shift > 0 and rounded & 1)
        if rounded >> (4 * kept) > 1:
            rounded, exponent = rounded >> 1, exponent + 1
        digits = f"{rounded:0{kept + 1}x}"
        whole, fraction = digits[0], digits[1:].ljust(precision, "0")
    point = "." if fraction else ""
    return f"0x{whole}{point}{fraction}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _mantissa(value: float) -> tuple[int, int]:
    """Give the 53 bits of the number and the power of two of their highest."""
    if value == 0:
        return 0, 0
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, _MANTISSA_BITS + 1)), exponent - 1


def _binary(value: float) -> str:
    if value == 0:
        return "0p-1074"
    fraction, exponent = math.frexp(value)
    power = max(exponent - (_MANTISSA_BITS + 1), -1074)
    return f"{int(math.ldexp(fraction, exponent - power))}p{power:+d}"
