"""What each target of a driver should run, in the cluster as it is or as it would be. Pure.

Place in the flow: ``observe`` asks the registries for these images, ``plan`` brings them about; ``gate``, ``preflight``
and ``ahead`` ask the same of kernels that no node runs yet, so that all of them mean the very same image.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.boundary import contained
from driver_builder.desired import desired as desired_module
from driver_builder.desired import targets
from driver_builder.desired.desired import Recipes, Unwanted, Wanted
from driver_builder.model.build import OwnTemplate
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed import rebuild
from driver_builder.observed.inventory import Inventory, Node
from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.snapshot import Snapshot, SourceMissing
from driver_builder.reasons import REASONS, Reason
from kube_api import names


def desired_targets(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, recipes: Recipes
) -> tuple[tuple[Wanted | Unwanted, ...], Inventory, Rebuilds]:
    """Say what each target of a driver should run, which nodes have which target, and which rebuilds are known."""
    stock = targets.stock_of(snapshot, driver, spec)
    known = rebuild.from_status(driver.status.get("rebuild"))
    rebuilds = rebuild.acknowledge(
        known,
        driver=driver.rebuild,
        targets=stock.targets,
        nodes=snapshot.nodes,
        pods={pod.node: pod.uid for pod in snapshot.pods if pod.driver == driver.key and not pod.deleting},
        now=snapshot.now,
    )
    wanted = _desired(snapshot, driver, spec, recipes, stock=stock, rebuilds=rebuilds)
    return _without_namesakes(wanted, snapshot, driver), stock, rebuilds


def images_of_nodes(snapshot: Snapshot, recipes: Recipes) -> Iterator[tuple[DriverContainer, Wanted]]:
    """Name the images that drivers want, and those of which one that exists would be wanted instead."""
    for driver in snapshot.drivers:
        found = contained("driver", driver.key, partial(_images_of, snapshot, driver, recipes), lambda _error: ())
        yield from ((driver, item) for item in found)


def _images_of(snapshot: Snapshot, driver: DriverContainer, recipes: Recipes) -> tuple[Wanted, ...]:
    spec = driver.spec
    if not isinstance(spec, DriverSpec) or driver.deleting or driver.namespace in snapshot.forbidden:
        return ()
    wanted, _, rebuilds = desired_targets(snapshot, driver, spec, recipes)
    others = (
        item
        for stock in targets.unrecorded(snapshot, driver, spec)
        for item in _desired(snapshot, driver, spec, recipes, stock=stock, rebuilds=rebuilds)
    )
    return tuple({item.image: item for item in (*wanted, *others) if isinstance(item, Wanted)}.values())


def _desired(
    snapshot: Snapshot,
    driver: DriverContainer,
    spec: DriverSpec,
    recipes: Recipes,
    *,
    stock: Inventory,
    rebuilds: Rebuilds,
) -> tuple[Wanted | Unwanted, ...]:
    source = snapshot.sources.get(driver.key, SourceMissing(message="the source has not been read yet"))
    return desired_module.desired(
        driver,
        spec,
        inventory=stock,
        source=source.message if isinstance(source, SourceMissing) else source,
        rebuilds=rebuilds,
        recipes=recipes,
        template=_own_template(snapshot, driver, spec),
        certificates=snapshot.certificates,
    )


def _without_namesakes(
    items: tuple[Wanted | Unwanted, ...], snapshot: Snapshot, driver: DriverContainer
) -> tuple[Wanted | Unwanted, ...]:
    """Refuse targets whose digits are those of another one: they would take each other's DaemonSet.

    The target that the DaemonSet was made for keeps it, otherwise the first in order.
    """
    made_for = {item.target: item.kernel for item in snapshot.daemon_sets if item.driver == driver.key}
    owners: dict[str, KernelTarget] = {}
    for target in (item.target for item in items):
        known = owners.setdefault(target.short_hash, target)
        if made_for.get(target.short_hash) == target.kernel_version != known.kernel_version:
            owners[target.short_hash] = target
    return tuple(
        item if owners[item.target.short_hash] == item.target else _refused(item, owners[item.target.short_hash])
        for item in items
    )


def _refused(item: Wanted | Unwanted, owner: KernelTarget) -> Unwanted:
    message = (
        f"the names of its objects end in {item.target.short_hash}, as those of {owner.id} do: nothing is rolled out "
        "to its nodes"
    )
    return Unwanted(
        target=item.target,
        nodes=item.nodes,
        state=REASONS[Reason.TARGET_NAME_TAKEN].states[0],
        reason=Reason.TARGET_NAME_TAKEN,
        message=message,
    )


def _own_template(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec) -> OwnTemplate | str | None:
    if spec.own_template is None:
        return None
    template = snapshot.templates.get(driver.key, SourceMissing(message="the template has not been read yet"))
    return template.message if isinstance(template, SourceMissing) else template


def wanted_for(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, target: KernelTarget, recipes: Recipes
) -> Wanted | Unwanted | None:
    """Say what a node of the driver's choice would have to run on the target; None when it chooses no such node."""
    # No name of a node can have a slash: it meets none that is there.
    node = Node(
        name=f"preflight/{driver.key}",
        labels={
            **spec.node_selector,
            names.KERNEL_VERSION_LABEL: names.label_value(target.kernel_version),
            names.OS_ID_LABEL: target.os_id,
            names.OS_VERSION_LABEL: target.os_version,
            names.ARCHITECTURE_LABEL: target.architecture,
        },
        annotations={names.KERNEL_VERSION_ANNOTATION: target.kernel_version},
    )
    items, _, _ = desired_targets(replace(snapshot, nodes=(*snapshot.nodes, node)), driver, spec, recipes)
    return next((item for item in items if node.name in item.nodes), None)
