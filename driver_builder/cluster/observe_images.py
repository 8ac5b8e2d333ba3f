"""Which images a snapshot wants, and what the registries say of them: the last part of an observation.

Place in the flow: ``observe`` calls it with everything else in the snapshot. A driver is given what the registry says
to it, with its own namespace, Secret and settings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired.desired import Recipes, Wanted
from driver_builder.desired.resolve import images_of_nodes
from driver_builder.model.image_state import Absent, ImageState, NotAsked
from driver_builder.model.images import ImageRef
from driver_builder.observed.snapshot import Snapshot
from driver_builder.upgrades.prebuild import images_ahead
from driver_builder.upgrades.upgrade_labels import images_of_moves

Inspect = Callable[[DriverContainer, DriverSpec, Wanted], ImageState]


def with_images(snapshot: Snapshot, recipes: Recipes, inspect: Inspect) -> Snapshot:
    """Give the snapshot with the states of the images that its drivers want."""
    states: dict[str, dict[ImageRef, ImageState]] = {}
    for driver, spec, item in _wanted(snapshot, recipes):
        own = states.setdefault(driver.key, {})
        if item.image not in own:
            own[item.image] = inspect(driver, spec, item)
    images: dict[ImageRef, ImageState] = {}
    images_of: dict[str, dict[ImageRef, ImageState]] = {}
    for key, own in states.items():
        for image, state in _complete(own).items():
            if images.setdefault(image, state) != state:
                images_of.setdefault(key, {})[image] = state
    return replace(snapshot, images=images, images_of=images_of)


def _complete(states: Mapping[ImageRef, ImageState]) -> Mapping[ImageRef, ImageState]:
    """While some answers for a driver are missing no absence starts a build: an image that exists says what to build.

    A target takes the version of its operating system from such an image.
    """
    if not any(isinstance(state, NotAsked) for state in states.values()):
        return states
    return {image: Absent(is_fresh=False) if isinstance(state, Absent) else state for image, state in states.items()}


def _wanted(snapshot: Snapshot, recipes: Recipes) -> Iterator[tuple[DriverContainer, DriverSpec, Wanted]]:
    """Images of nodes first: what is known of their architecture goes before a guess."""
    of_nodes = images_of_nodes(snapshot, recipes)
    for driver, item in (*of_nodes, *images_ahead(snapshot, recipes), *images_of_moves(snapshot, recipes)):
        if isinstance(driver.spec, DriverSpec):
            yield driver, driver.spec, item
