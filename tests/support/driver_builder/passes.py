"""The controller's own passes over a model world."""

from collections.abc import Callable

from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS
from tests.support.driver_builder.model_parts import ModelBuilds
from tests.support.driver_builder.model_world import World


def reconciler(world: World, builds: ModelBuilds, is_stopping: Callable[[], bool] = lambda: False) -> Reconciler:
    """Make a reconciler of a world."""
    return Reconciler(
        observer=Observer(
            world.client,
            namespaces=(NAMESPACE,),
            builds=builds,
            clock=lambda: world.now,
        ),
        images=ImageReader(world.registries, SETTINGS.template_versions),
        executor=Executor(world.client, builds, is_stopping=is_stopping),
        reporter=Reporter(world.client, is_stopping=is_stopping),
        builds=builds,
        settings=SETTINGS,
        is_stopping=is_stopping,
    )
