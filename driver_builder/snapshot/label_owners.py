"""Who owns the labels of a node, as its ``managedFields`` say: small, as thousands of nodes say the same. Pure.

Of others those that third parties may set are of interest; of ours all, so that what was allowed once can be removed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from driver_builder.model import third_party_labels
from driver_builder.model.third_party_labels import FIELD_MANAGER
from kube_api.text import printable

_LONGEST_MANAGER = 128
"""Characters; the API server takes no longer name."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LabelOwner:
    """A field manager, and the labels that it owns."""

    manager: str
    keys: tuple[str, ...]
    """Sorted: a set would take four times as much."""


_known: "WeakValueDictionary[tuple[str, tuple[str, ...]], LabelOwner]" = WeakValueDictionary()


def read_label_owners(metadata: Mapping[str, Any]) -> tuple[LabelOwner, ...]:
    """Read the owners of the labels, by their names."""
    found: dict[str, set[str]] = {}
    for entry in metadata.get("managedFields") or ():
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
        manager = printable(str(entry.get("manager") or ""), _LONGEST_MANAGER)
        # FieldsV1 has "f:" before each key, and "." for the map itself.
        keys = (field[2:] for field in fields if field.startswith("f:"))
        kept = {sys.intern(key) for key in keys if manager == FIELD_MANAGER or third_party_labels.is_free(key)}
        if kept:
            found.setdefault(manager, set()).update(kept)
    return tuple(_owner(manager, tuple(sorted(found[manager]))) for manager in sorted(found))


def _owner(manager: str, keys: tuple[str, ...]) -> LabelOwner:
    known = _known.get((manager, keys))
    if known is None:
        known = _known.setdefault((manager, keys), LabelOwner(manager=manager, keys=keys))
    return known
