"""The labels of a node, small: thousands of nodes have the same hundred keys, which are kept once. Pure."""

from collections.abc import Iterator, Mapping
from weakref import WeakValueDictionary


class _Places(dict[str, int]):
    """Keys, each with the place of its value."""

    __slots__ = ("__weakref__",)


_known: "WeakValueDictionary[tuple[str, ...], _Places]" = WeakValueDictionary()


class NodeLabels(Mapping[str, str]):
    """A mapping that shares its keys with all others that have the same ones. It does not change.

    A tuple of 110 values takes 0.9 kB, where a dictionary takes 4.7 kB; to read a label takes some 0.1 us more. A node
    with a key that no other one has takes 6.5 kB.
    """

    __slots__ = ("_places", "_values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys = tuple(sorted(labels))
        places = _known.get(keys)
        if places is None:
            places = _known.setdefault(keys, _Places(zip(keys, range(len(keys)), strict=True)))
        self._places = places
        self._values = tuple(map(labels.__getitem__, keys))

    def __getitem__(self, key: str) -> str:
        return self._values[self._places[key]]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeLabels):
            return self._values == other._values and self._places == other._places
        return dict(self) == other

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"NodeLabels({dict(self)!r})"
