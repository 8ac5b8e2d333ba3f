"""Drivers whose wave does not end yet, although all of their nodes have it, because of drivers on the same nodes. Pure.

Place in the flow: ``plan`` asks before it plans each driver alone. Drivers that depend on each other return together to
the images of before, which fit each other: none of them gives up its own as long as another one may need it.
"""

from collections.abc import Iterator, Mapping

from driver_builder.model.driver_key import DriverKey
from driver_builder.snapshot.by_driver import of_driver, pods_of
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.pairs import Pair, pairs
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.dependencies import Dependencies, unload_order

_Pairs = Mapping[str, Pair]


def held_waves(snapshot: Snapshot, needs: Mapping[DriverKey, Dependencies]) -> frozenset[DriverKey]:
    """Name the drivers that keep their image of before."""
    every = {key: pairs(of_driver(snapshot.daemon_sets, key)) for key in needs}
    return frozenset(_held({key: found for key, found in every.items() if found}, snapshot, needs))


def _held(
    waves: Mapping[DriverKey, _Pairs], snapshot: Snapshot, needs: Mapping[DriverKey, Dependencies]
) -> Iterator[DriverKey]:
    for key, found in waves.items():
        above = [other for other in unload_order(key, needs) if other in waves]
        # What these would return to fits what this one would return to.
        if any(not found.keys().isdisjoint(waves[other]) for other in above):
            yield key
        if above and _is_overtaken(key, found, snapshot):
            yield from above


def _is_overtaken(driver: DriverKey, found: _Pairs, snapshot: Snapshot) -> bool:
    """Return whether a node that a wave has reached has other modules than the wave brings by now."""
    moved = {pair.moved.target_label: pair.moved for pair in found.values()}
    pods = pods_of(snapshot.pods, driver)
    reached = ((node.name, moved.get(record_of(node, driver).wave or "")) for node in snapshot.nodes)
    return any(
        item is not None
        and any(not pod.deleting and pod.slot == item.slot.name and pod.builds != item.builds for pod in pods.on(name))
        for name, item in reached
    )
