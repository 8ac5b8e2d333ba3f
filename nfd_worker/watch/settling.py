"""Additions at once, removals after a grace: a file that is rewritten must not make its labels come and go. Pure.

Between :mod:`nfd_worker.cycle` and :mod:`nfd_worker.publish.publisher`. What was wanted and is not found any more is
wanted on for the grace; the caller runs a cycle then, and what is still missing goes. A value changes at once, and what
has had its grace before the rules ran (:mod:`nfd_worker.watch.held_features`) has none here.
"""

from collections.abc import Mapping, Set

from feature_rules.model import Taint
from nfd_worker.labels.node_content import NO_ORIGINS, NodeContent, Origins
from nfd_worker.watch.schedule import NEVER

_FIELDS = ("labels", "annotations", "extended_resources")

_Items = Mapping[tuple[str, ...], str]
"""Field and key, of a taint its effect, too -> value."""


class Settling:
    """Remembers what was wanted last, and since when some of it is missing."""

    def __init__(self) -> None:
        self._wanted = NodeContent()
        self._origins: Origins = NO_ORIGINS
        self._missing_since: Mapping[tuple[str, ...], float] = {}
        self.due = NEVER

    def settle(
        self, found: NodeContent, origins: Origins, now: float, grace: float, *, at_once: bool = False
    ) -> tuple[NodeContent, Origins]:
        """Give what the Node should carry, and what made it, when the cycle of this moment found that.

        ``at_once``: what is missing for the first time goes now. ``due`` says when the next removal has settled, if it
        is still one then.
        """
        before, items = _items(self._wanted), _items(found)
        first = now - grace if at_once else now
        missing = {place: self._missing_since.get(place, first) for place in before.keys() - items.keys()}
        self._missing_since = {place: since for place, since in missing.items() if now < since + grace}
        self.due = min(self._missing_since.values(), default=NEVER) + grace
        held = {place: before[place] for place in self._missing_since}
        self._wanted = _content({**items, **held}) if held else found
        self._origins = _with_held(origins, self._origins, {key for _, key, *_ in held}) if held else origins
        return self._wanted, self._origins


def _with_held(found: Origins, before: Origins, keys: Set[str]) -> Origins:
    held = {origin: [key for key in made if key in keys] for origin, made in before.items()}
    origins = sorted({*found, *(origin for origin, made in held.items() if made)})
    return {origin: tuple(sorted({*found.get(origin, ()), *held.get(origin, ())})) for origin in origins}


def _items(content: NodeContent) -> _Items:
    fields = content._asdict()
    items: dict[tuple[str, ...], str] = {
        (field, key): value for field in _FIELDS for key, value in fields[field].items()
    }
    for taint in content.taints:
        items["taints", taint.key, taint.effect] = taint.value
    return items


def _content(items: _Items) -> NodeContent:
    fields: dict[str, dict[str, str]] = {field: {} for field in _FIELDS}
    taints: list[Taint] = []
    for (field, key, *effect), value in sorted(items.items()):
        if effect:
            taints.append(Taint(key, value, effect[0]))
        else:
            fields[field][key] = value
    return NodeContent(**fields, taints=tuple(taints))
