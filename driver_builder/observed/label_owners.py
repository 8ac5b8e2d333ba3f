"""Who owns the labels of a node, as its ``managedFields`` say: small, as thousands of nodes say the same. Pure."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from driver_builder.model import third_party_labels
from kube_api.text import printable

_LONGEST_MANAGER = 128
"""Characters; the API server takes no longer name."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LabelOwner:
    """A field manager, and the labels that it owns."""

    manager: str
    keys: frozenset[str]


_known: "WeakValueDictionary[tuple[str, frozenset[str]], LabelOwner]" = WeakValueDictionary()


def read_label_owners(metadata: Mapping[str, Any]) -> tuple[LabelOwner, ...]:
    """Read the owners of the labels that third parties may set, by their names; all others are of no interest."""
    found: dict[str, set[str]] = {}
    for entry in metadata.get("managedFields") or ():
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
        # FieldsV1 has "f:" before each key, and "." for the map itself.
        keys = (field[2:] for field in fields if field.startswith("f:"))
        free = {sys.intern(key) for key in keys if third_party_labels.is_free(key)}
        if free:
            manager = printable(str(entry.get("manager") or ""), _LONGEST_MANAGER)
            found.setdefault(manager, set()).update(free)
    return tuple(_owner(manager, frozenset(found[manager])) for manager in sorted(found))


def _owner(manager: str, keys: frozenset[str]) -> LabelOwner:
    known = _known.get((manager, keys))
    if known is None:
        known = _known.setdefault((manager, keys), LabelOwner(manager=manager, keys=keys))
    return known
