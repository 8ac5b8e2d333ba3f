"""The label that keeps a driver's pods away from a node, and the record of why. Pure.

Where a driver is replaced that others depend on, these yield meanwhile: that is recorded.

The record is an annotation of the Node, written in the same patch as the labels of these drivers, and removed once they
are loaded again: a controller that is killed anywhere continues from it. A label with the value :data:`OUTSIDE` has no
record: the node was outside the driver's selector, and still had its modules. Such a driver keeps that value until it
is its turn to yield, also where a record names it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.model.driver_key import NOBODY, DriverKey
from kube_api import names

OUTSIDE = "outside"
"""The value of the label on such nodes; otherwise it names the driver that is replaced."""
MAX_BYTES = 16384
_LONGEST = 317
"""Characters of a namespace and a name, with a slash between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """``drivers`` yield to the ``first`` one, all by ``namespace/name``; a record that cannot be read is nobody's."""

    first: DriverKey = NOBODY
    drivers: tuple[DriverKey, ...] = ()


def yielding_of(annotations: Mapping[str, str]) -> Yielding | None:
    """Read the record among a Node's annotations, None without one."""
    text = annotations.get(names.YIELDING_ANNOTATION)
    return None if text is None else parse_yielding(text)


def parse_yielding(text: str) -> Yielding:
    """Read a record."""
    try:
        content = json.loads(text[: MAX_BYTES + 1])
        return Yielding(first=_key(content["first"]), drivers=tuple(map(_key, content["drivers"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Yielding()


def render_yielding(record: Yielding) -> str:
    """Write a record; it is read again the same."""
    return json.dumps({"first": record.first, "drivers": record.drivers}, separators=(",", ":"))


def yield_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> list[str]:
    """Return the labels by which drivers yield on a Node, without those of drivers that were outside."""
    record = yielding_of(annotations)
    is_named_so = record is not None and bool(record.first) and record.first.name == OUTSIDE
    return [key for key, value in labels.items() if is_yield_label(key) and (value != OUTSIDE or is_named_so)]


def is_yield_label(label: str) -> bool:
    """Return whether a label keeps the pods of some driver away from a node."""
    return label.startswith(f"{names.GROUP}/") and label.endswith(names.YIELD_SUFFIX)


def _key(value: object) -> DriverKey:
    text = str(value)
    if "/" not in text or len(text) > _LONGEST:
        raise ValueError("no driver")
    return DriverKey(text)
