"""Kubernetes quantities, such as ``10``, ``1500m``, ``2Gi`` and ``5e3``: what an extended resource may be worth. Pure.

The grammar is that of ``resource.Quantity`` (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

import re
from typing import NamedTuple

_NANO = 10**9
_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?", re.ASCII)
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_LARGEST = 2**63 - 1
_LONGEST = 100
"""Characters. The API server takes more, but no count of devices has them."""

_LARGEST_POWER = 200
"""Powers of ten beyond it change nothing any more: the value is at its limit, or less than a nano."""


class Quantity(NamedTuple):
    """A quantity in billionths; equal values are equal however they are written."""

    nanos: int

    @property
    def is_whole(self) -> bool:
        """Whether it has no fraction."""
        return self.nanos % _NANO == 0

    @property
    def value(self) -> int:
        """The integer that Kubernetes counts with: a fraction is rounded up."""
        return -(-self.nanos // _NANO)


def parse_quantity(text: str) -> Quantity | None:
    """Read a quantity; None when the text is not one.

    As in Kubernetes, what is finer than a nano is rounded away from zero, and 2^63-1 is the limit in both directions.
    """
    found = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    sign, whole, fraction, suffix = found[1], found[2], found[3] or "", found[4] or ""
    if not whole and not fraction:
        return None
    # An integer over a power of ten, since floats would round.
    power = _power_of_ten(suffix) + 9 - len(fraction)
    number = int(whole + fraction) * _BINARY.get(suffix, 1)
    nanos = number * 10**power if power >= 0 else -(-number // 10**-power)
    nanos = min(nanos, _LARGEST * _NANO)
    return Quantity(-nanos if sign == "-" else nanos)


def _power_of_ten(suffix: str) -> int:
    if suffix in _BINARY:
        return 0
    power = int(suffix[1:]) if suffix[:1] in ("e", "E") and len(suffix) > 1 else _DECIMAL[suffix]
    return max(-_LARGEST_POWER, min(power, _LARGEST_POWER))
