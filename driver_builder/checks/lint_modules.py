"""Modules that are named twice, and drivers that name one module or one resource for the same nodes. Pure.

Place in the flow: ``lint`` calls it, for the latter if it knows the nodes. The controller lets one of the two keep it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.check_result import Remark, Status
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.resource_claim import overlap
from driver_builder.model.resource_claim import words as domain
from driver_builder.objects.loaded import plain
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import conflicts, resource_conflicts


def repeated(names: Sequence[str]) -> Iterator[Remark]:
    """Return which names are those of a module that was named before, with their places: ``-`` and ``_`` are one."""
    known: dict[str, str] = {}
    for index, name in enumerate(names):
        if before := known.get(plain(name)):
            words = f"{name!r} is the same module as {before!r}: name it once, at its place in the load order"
            yield Remark(("spec", "module", "names", index), words, Status.FAILED)
        known.setdefault(plain(name), name)


def shared_modules(
    driver: DriverKey, spec: DriverSpec, others: Mapping[DriverKey, DriverSpec], nodes: Iterable[Node]
) -> Iterator[Remark]:
    """Return which module another driver names as well, to load or to remove it, and on which nodes both are."""
    nodes = tuple(nodes)
    for other in sorted(others.keys() - {driver}):
        module = conflicts.shared_module(spec, others[other])
        both = conflicts.selected(spec, nodes) & conflicts.selected(others[other], nodes) if module else frozenset()
        if module and both:
            words = f"{conflicts.words(module, other, both)}; only one of them may load it"
            yield Remark(("spec", "module"), words)


def shared_resource(
    driver: DriverKey, spec: DriverSpec, others: Mapping[DriverKey, DriverSpec], nodes: Iterable[Node]
) -> Iterator[Remark]:
    """Return which other driver offers the same resource by its device plugin, and on which nodes both are."""
    nodes, claim = tuple(nodes), resource_conflicts.offered(spec)
    for other in sorted(others.keys() - {driver}):
        theirs = resource_conflicts.offered(others[other])
        is_same = claim is not None and theirs is not None and overlap(claim, theirs)
        both = conflicts.selected(spec, nodes) & conflicts.selected(others[other], nodes) if is_same else frozenset()
        if claim and theirs and both:
            where, name = conflicts.on_nodes(both), max(claim, theirs, key=len)
            # Where both claim a domain, which resources of it come is not known.
            what, them = (f"{domain(name)} are", "them") if name.endswith("/") else (f"resource {name} is", "it")
            words = f"{what} also offered by driver {other} {where}; only one of them may offer {them}"
            yield Remark(("spec", "stages", "devicePlugin"), words)
