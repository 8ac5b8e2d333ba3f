"""What each target of a driver should run, in the cluster as it is or as it would be. Pure.

Place in the flow: ``observe`` asks the registries for these images, ``plan`` brings them about; ``gate``, ``preflight``
and ``ahead`` ask the same of kernels that no node runs yet, so that all of them mean the very same image.
"""

from dataclasses import replace

from driver_builder.model.build import BuildRequest, OwnTemplate
from driver_builder.model.kernels import KernelTarget
from driver_builder.planning import desired as desired_module
from driver_builder.planning import inventory, rebuild
from driver_builder.planning.actions import ReuseCandidate, StartBuild
from driver_builder.planning.desired import Recipes, Unwanted, Wanted
from driver_builder.planning.inventory import Inventory, Node
from driver_builder.planning.rebuild import Rebuilds
from driver_builder.planning.snapshot import Snapshot, SourceMissing
from driver_builder.spec.driver_container import DriverContainer
from driver_builder.spec.driver_spec import DriverSpec
from kube_api import names


def desired_targets(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, recipes: Recipes
) -> tuple[tuple[Wanted | Unwanted, ...], Inventory, Rebuilds]:
    """Say what each target of a driver should run, which nodes have which target, and which rebuilds are known."""
    stock = inventory.take(snapshot.nodes, spec.node_selector)
    known = rebuild.from_status(driver.status.get("rebuild"))
    rebuilds = rebuild.acknowledge(known, driver=driver.rebuild, targets=stock.targets, nodes=snapshot.nodes)
    source = snapshot.sources.get(driver.key, SourceMissing(message="the source has not been read yet"))
    wanted = desired_module.desired(
        driver,
        spec,
        inventory=stock,
        source=source.message if isinstance(source, SourceMissing) else source,
        rebuilds=rebuilds,
        recipes=recipes,
        template=_own_template(snapshot, driver, spec),
        certificates=snapshot.certificates,
    )
    return wanted, stock, rebuilds


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


def start_build(
    driver: DriverContainer,
    spec: DriverSpec,
    item: Wanted,
    request: BuildRequest,
    *,
    waiting: int = 0,
    reuse: tuple[ReuseCandidate, ...] = (),
) -> StartBuild:
    """Make the action that builds an image, as the spec wants it built; ``waiting`` is how many nodes wait for it."""
    return StartBuild(
        namespace=driver.namespace,
        request=request,
        image=item.image,
        registry=spec.registry,
        waiting=waiting,
        reuse=reuse,
        builder=spec.builder,
        build_secrets=spec.build_secrets,
        resources=spec.build_resources,
    )
