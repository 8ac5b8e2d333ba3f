"""The record of a node where a driver is replaced that others depend on: these yield meanwhile. Pure.

It is an annotation of the Node, written in the same patch as the labels that keep the pods of these drivers away, and
removed once they are loaded again: a controller that is killed anywhere continues from it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kube_api import names

MAX_BYTES = 16384
_LONGEST = 317
"""Characters of a namespace and a name, with a slash between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """``drivers`` yield to the ``first`` one, all by ``namespace/name``; a record that cannot be read is nobody's."""

    first: str = ""
    drivers: tuple[str, ...] = ()


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


def label_of(driver: str) -> str:
    """Return the label that keeps the pods of a driver, by ``namespace/name``, away from a node."""
    namespace, _, name = driver.partition("/")
    return names.yield_label(namespace, name)


def is_yield_label(label: str) -> bool:
    """Return whether a label keeps the pods of some driver away from a node."""
    return label.startswith(f"{names.GROUP}/") and label.endswith(names.YIELD_SUFFIX)


def _key(value: object) -> str:
    text = str(value)
    if "/" not in text or len(text) > _LONGEST:
        raise ValueError("no driver")
    return text
