"""What the registries say of the images that a snapshot wants: the second step of a reconcile.

Place in the flow: ``cluster`` reads the objects, ``resolve`` says which images they want, this asks the registries, and
``plan`` decides. A driver is given what the registry says to it, with its own namespace, Secret and settings.

A fleet at rest has hundreds of images, and all of them are there. So a driver's images are not asked for one by one in
each reconcile (:data:`ASKED_SECONDS`), and what was put together of all drivers stays the same object.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.boundary import contained
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked, Present
from driver_builder.model.images import ImageRef
from driver_builder.prebuild.prebuild import images_ahead
from driver_builder.prebuild.upgrade_labels import images_of_moves
from driver_builder.rollout import image_trust
from driver_builder.snapshot.inspector import Inspector
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import ImageTarget, TemplateVersions
from driver_builder.targets.resolve import Resolved
from driver_builder.targets.resolve_all import ResolveMemory, resolve_all

ASKED_SECONDS = 10.0
"""So long nobody asks for a driver's images again that are all there, unless there is news of any image."""

States = Mapping[ImageRef, ImageState]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The images of a driver's nodes, which are all there; ``states`` holds for ``resolved`` and ``news``."""

    resolved: Resolved
    news: int
    until: float
    states: States


@dataclass(frozen=True, slots=True, kw_only=True)
class _Together:
    """The images of all drivers, as a snapshot has them, and what they were put together of."""

    states: Mapping[DriverKey, States]
    images: States
    images_of: Mapping[DriverKey, States]


class ImageReader:
    """Asks registries, which either wait for answers (commands) or give what is known (the controller).

    ``pushed`` gives the images that this process pushed, with their digests. ``news`` counts what makes an answer
    another one than was given; without it all images are asked for each time.
    """

    def __init__(
        self,
        registries: Inspector,
        versions: TemplateVersions,
        *,
        pushed: Callable[[], Mapping[ImageRef, str]] = dict,
        memory: ResolveMemory | None = None,
        news: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registries = registries
        self._versions = versions
        self._pushed = pushed
        self._memory = memory or ResolveMemory()
        self._news = news
        self._clock = clock
        self._given: dict[str, _Given] = {}
        self._together = _Together(states={}, images={}, images_of={})

    def resolve(self, snapshot: Snapshot) -> Mapping[str, Resolved]:
        """Resolve the drivers of a snapshot, by their keys."""
        return resolve_all(snapshot, self._versions, self._memory)

    def read(self, snapshot: Snapshot, resolved: Mapping[str, Resolved] | None = None) -> Snapshot:
        """Give the snapshot with the states of the images that its drivers want; it may be of a cluster to come."""
        known = self.resolve(snapshot) if resolved is None else resolved
        states = dict(self._of_nodes(snapshot, known))
        for driver, spec, item in self._of_next_kernels(snapshot):
            # What is known of a node's architecture goes before a guess.
            own = states.get(driver.key, {})
            if item.image not in own:
                states[driver.key] = {**own, item.image: self._image(driver, spec, item)}
        before = self._together.states
        if before.keys() != states.keys() or any(before[key] is not own for key, own in states.items()):
            self._together = _together(states)
        # After the images: what was pushed in between is known as ours.
        together = self._together
        return replace(snapshot, images=together.images, images_of=together.images_of, pushed=self._pushed())

    def _of_nodes(self, snapshot: Snapshot, resolved: Mapping[str, Resolved]) -> Iterator[tuple[DriverKey, States]]:
        """Give the states of the images of drivers' nodes, by driver key: the same object while they are the same."""
        self._given = {key: given for key, given in self._given.items() if resolved.get(key) is given.resolved}
        for driver in snapshot.drivers:
            if driver.key in resolved and isinstance(driver.spec, DriverSpec):
                yield driver.key, self._of_driver(driver, driver.spec, resolved[driver.key])

    def _of_driver(self, driver: DriverContainer, spec: DriverSpec, resolved: Resolved) -> States:
        # Before the images: an answer that comes meanwhile is news the next time.
        news, now = self._news() if self._news is not None else None, self._clock()
        given = self._given.get(driver.key)
        if given is not None and given.news == news and now < given.until:
            return given.states
        states: States = {item.image: self._image(driver, spec, item) for item in resolved.images}
        if given is not None and given.states == states:
            states = given.states
        if news is not None and all(isinstance(state, Present) for state in states.values()):
            until = now + ASKED_SECONDS
            self._given[driver.key] = _Given(resolved=resolved, news=news, until=until, states=states)
        return states

    def _of_next_kernels(self, snapshot: Snapshot) -> Iterator[tuple[DriverContainer, DriverSpec, ImageTarget]]:
        ahead = images_ahead(snapshot, self._versions)
        for driver, item in (*ahead, *images_of_moves(snapshot, self._versions)):
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


def _together(states: Mapping[DriverKey, States]) -> _Together:
    """Put the images of all drivers together: where two drivers are told different things, apart."""
    images: dict[ImageRef, ImageState] = {}
    images_of: dict[DriverKey, dict[ImageRef, ImageState]] = {}
    for key, own in states.items():
        for image, state in _complete(own).items():
            if images.setdefault(image, state) != state:
                images_of.setdefault(key, {})[image] = state
    return _Together(states=states, images=images, images_of=images_of)


def _complete(states: States) -> States:
    """While some answers for a driver are missing no absence starts a build: an image that exists says what to build.

    A target takes the version of its operating system from such an image.
    """
    if not any(isinstance(state, NotAsked) for state in states.values()):
        return states
    return {image: Absent(is_fresh=False) if isinstance(state, Absent) else state for image, state in states.items()}
