"""What the registries say of the images that a snapshot wants: the second step of a reconcile.

Place in the flow: ``cluster`` reads the objects, ``resolve`` says which images they want, this asks the registries, and
``plan`` decides. A driver is given what the registry says to it, with its own namespace, Secret and settings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.boundary import contained
from driver_builder.desired.desired_target import ImageTarget, TemplateVersions
from driver_builder.desired.resolve import Resolved
from driver_builder.desired.resolve_all import ResolveMemory, resolve_all
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked
from driver_builder.model.images import ImageRef
from driver_builder.observed.snapshot import Snapshot
from driver_builder.planning import image_trust
from driver_builder.references.registry_access import Inspector
from driver_builder.upgrades.prebuild import images_ahead
from driver_builder.upgrades.upgrade_labels import images_of_moves


class ImageReader:
    """Asks registries, which either wait for answers (commands) or give what is known (the controller).

    ``pushed`` gives the images that this process pushed, with their digests.
    """

    def __init__(
        self,
        registries: Inspector,
        versions: TemplateVersions,
        *,
        pushed: Callable[[], Mapping[ImageRef, str]] = dict,
        memory: ResolveMemory | None = None,
    ) -> None:
        self._registries = registries
        self._versions = versions
        self._pushed = pushed
        self._memory = memory or ResolveMemory()

    def resolve(self, snapshot: Snapshot) -> Mapping[str, Resolved]:
        """Resolve the drivers of a snapshot, by their keys."""
        return resolve_all(snapshot, self._versions, self._memory)

    def read(self, snapshot: Snapshot, resolved: Mapping[str, Resolved] | None = None) -> Snapshot:
        """Give the snapshot with the states of the images that its drivers want; it may be of a cluster to come."""
        known = self.resolve(snapshot) if resolved is None else resolved
        states: dict[str, dict[ImageRef, ImageState]] = {}
        for driver, spec, item in self._wanted(snapshot, known):
            own = states.setdefault(driver.key, {})
            if item.image not in own:
                own[item.image] = self._image(driver, spec, item)
        images: dict[ImageRef, ImageState] = {}
        images_of: dict[str, dict[ImageRef, ImageState]] = {}
        for key, own in states.items():
            for image, state in _complete(own).items():
                if images.setdefault(image, state) != state:
                    images_of.setdefault(key, {})[image] = state
        # After the images: what was pushed in between is known as ours.
        return replace(snapshot, images=images, images_of=images_of, pushed=self._pushed())

    def _wanted(
        self, snapshot: Snapshot, resolved: Mapping[str, Resolved]
    ) -> Iterator[tuple[DriverContainer, DriverSpec, ImageTarget]]:
        """Images of nodes first: what is known of their architecture goes before a guess."""
        of_nodes = [
            (driver, item)
            for driver in snapshot.drivers
            if driver.key in resolved
            for item in resolved[driver.key].images
        ]
        ahead = images_ahead(snapshot, self._versions)
        for driver, item in (*of_nodes, *ahead, *images_of_moves(snapshot, self._versions)):
            if isinstance(driver.spec, DriverSpec):
                yield driver, driver.spec, item

    def _image(self, driver: DriverContainer, spec: DriverSpec, item: ImageTarget) -> ImageState:
        return contained(
            "image",
            str(item.image),
            partial(
                self._registries.inspect,
                driver.namespace,
                spec.registry,
                item.image,
                item.target.architecture,
                signed_by=image_trust.image_key(spec, item),
            ),
            lambda error: Invalid(message=str(error)),
        )


def _complete(states: Mapping[ImageRef, ImageState]) -> Mapping[ImageRef, ImageState]:
    """While some answers for a driver are missing no absence starts a build: an image that exists says what to build.

    A target takes the version of its operating system from such an image.
    """
    if not any(isinstance(state, NotAsked) for state in states.values()):
        return states
    return {image: Absent(is_fresh=False) if isinstance(state, Absent) else state for image, state in states.items()}
