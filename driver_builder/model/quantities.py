"""Amounts of resources as Kubernetes writes them: ``500m``, ``2``, ``1.5Gi``. Pure."""

import re
from decimal import Decimal

PATTERN = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|k|Ki|[MGTPE]i?)?")
MAX_LENGTH = 32
"""Characters."""

_PARTS = re.compile(r"(?P<number>[0-9.]+)(?P<unit>.*)")
_POWERS = "kMGTPE"


def amount(quantity: str | int) -> Decimal:
    """Read a quantity, in cores or bytes.

    Raises:
        ValueError: when it is not one.
    """
    if isinstance(quantity, int):
        return Decimal(quantity)
    parts = _PARTS.fullmatch(quantity)
    if parts is None or len(quantity) > MAX_LENGTH or not PATTERN.fullmatch(quantity):
        raise ValueError(f"{quantity!r} is not a quantity: write one such as 500m, 2 or 8Gi")
    return Decimal(parts["number"]) * _factor(parts["unit"])


def _factor(unit: str) -> Decimal:
    if unit == "m":
        return Decimal("0.001")
    if not unit:
        return Decimal(1)
    power = 1 + _POWERS.index("k" if unit == "Ki" else unit[0])
    return Decimal(1024 if unit.endswith("i") else 1000) ** power
