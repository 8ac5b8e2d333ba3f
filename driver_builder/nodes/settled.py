"""Nodes where nothing of a driver's stages is to be done, so that a plan of them costs what changed.

As with ordinary nodes, the objects that say so are remembered: while they are the same, it stays true. On a settled
node the driver is proven and every stage is there, or neither is.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from driver_builder.base.persistent import Layered
from driver_builder.snapshot.inventory import Node


@dataclass(slots=True, kw_only=True)
class Settled:
    """What the last plan of a driver's stages has found. ``face`` is what all nodes were looked at by.

    ``done`` are the nodes with every stage, ``without`` those that have none and get none, ``left`` all others.
    """

    face: object = None
    nodes: Layered[Node] = field(default_factory=Layered)
    on_node: tuple[Mapping[str, object], ...] = ()
    done: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def begin(self, face: object, nodes: Layered[Node], *on_node: Mapping[str, object]) -> set[str]:
        """Return the nodes to look at: those that are other objects now, have others ``on_node``, or were left."""
        if face != self.face or len(on_node) != len(self.on_node):
            self.done, self.without, self.left = set(), set(), set(nodes)
        else:
            self.left |= self.nodes.differing(nodes)
            for before, now in zip(self.on_node, on_node, strict=True):
                self.left |= _differing(before, now)
            gone = {name for name in self.left if name not in nodes}
            for known in (self.done, self.without, self.left):
                known.difference_update(gone)
        self.face, self.nodes, self.on_node = face, nodes, on_node
        return set(self.left)

    def end(self, looked_at: Collection[str], done: Collection[str], without: Collection[str]) -> None:
        """Remember what was found of the nodes that were looked at."""
        self.left = set(looked_at).difference(done, without)
        for known, found in ((self.done, done), (self.without, without)):
            known.difference_update(looked_at)
            known.update(found)


def _differing(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    if before is now:
        return set()
    # Equal tuples mostly have the very same pods.
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
