"""Modules that may fit a kernel without an image: images of the same parts for other kernels in use. Pure.

Place in the flow: ``plan_target`` adds them to the action; whether one exists and fits is checked when its build
starts, because it may be built until then. A fleet may have a thousand kernels, all new at once: so the images are
grouped and sorted once for all targets of a driver, and of each group only those are kept that may be among the
likeliest.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from driver_builder.model.build import BuildRequest
from driver_builder.nodes.actions import ReuseCandidate
from driver_builder.targets.desired_target import DesiredTarget, ImageTarget, PrebuiltTarget, TargetToBuild

MAX_CANDIDATES = 3
"""Candidates that are tried: each is fetched, and they mostly fit or fail alike."""


class Reusable:
    """The images that a driver's targets want; ``is_there`` says whether the registry has one."""

    def __init__(
        self, wanted: Iterable[DesiredTarget] = (), is_there: Callable[[ImageTarget], bool] = lambda _: False
    ) -> None:
        self._wanted = tuple(wanted)
        self._is_there = is_there

    def candidates(self, item: ImageTarget) -> tuple[ReuseCandidate, ...]:
        """Return the images that may fit a target, the likeliest first.

        Existing images come first, then kernels of the same flavour, then the newest.
        """
        if isinstance(item, PrebuiltTarget):
            return ()
        alike = self._groups.get(_face(item.request), ())
        group = next((group for group in alike if _has_same_parts(group.example, item.request)), None)
        return group.likeliest(item.target.kernel_version) if group is not None else ()

    @cached_property
    def _groups(self) -> dict[Hashable, list["_Group"]]:
        """Group the images by what they are made of; those of one group key mostly have the same parts."""
        found: dict[Hashable, list[_Group]] = {}
        images = [
            (_image(item, item.request, is_there=self._is_there(item)), item.request)
            for item in self._wanted
            if isinstance(item, ImageTarget) and isinstance(item, TargetToBuild)
        ]
        for image, request in sorted(images, key=lambda pair: (not pair[0].is_there, pair[0].rank)):
            alike = found.setdefault(_face(request), [])
            group = next((group for group in alike if _has_same_parts(group.example, request)), None)
            if group is None:
                alike.append(group := _Group(example=request))
            group.add(image)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    """An image; ``rank`` puts the newest kernels first."""

    is_there: bool
    flavour: str
    rank: tuple[tuple[int, ...], str]
    candidate: ReuseCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Images of the same parts as ``example``, in the order they were added: existing ones, the newest first.

    ``flavours`` are the first ones of each flavour, ``firsts`` of all: enough for any kernel, which skips
    itself, and in ``firsts`` its own flavour.
    """

    example: BuildRequest
    flavours: dict[tuple[bool, str], list[_Image]] = field(default_factory=dict)
    firsts: dict[bool, list[_Image]] = field(default_factory=dict)

    def add(self, image: _Image) -> None:
        of_flavour = self.flavours.setdefault((image.is_there, image.flavour), [])
        firsts = self.firsts.setdefault(image.is_there, [])
        if len(of_flavour) > MAX_CANDIDATES:
            return
        of_flavour.append(image)
        if len(firsts) <= 2 * MAX_CANDIDATES:
            firsts.append(image)

    def likeliest(self, kernel: str) -> tuple[ReuseCandidate, ...]:
        mine = _flavour(kernel)
        found: list[ReuseCandidate] = []
        for is_there in (True, False):
            own = self.flavours.get((is_there, mine), [])
            others = (image for image in self.firsts.get(is_there, ()) if image.flavour != mine)
            found += (image.candidate for image in (*own, *others) if image.candidate.kernel != kernel)
        return tuple(found[:MAX_CANDIDATES])


def _face(request: BuildRequest) -> Hashable:
    """Return what requests of one driver differ in, as far as it can be hashed."""
    target = request.target
    return (target.os, target.architecture, request.template, request.rebuild, frozenset(request.args.items()))


def _has_same_parts(one: BuildRequest, other: BuildRequest) -> bool:
    """Whether all but the kernel is the same; a rebuild that one of them requests is a difference."""
    if (one.target.os, one.target.architecture) != (other.target.os, other.target.architecture):
        return False
    return replace(one, target=other.target) == other


def _image(item: ImageTarget, request: BuildRequest, *, is_there: bool) -> _Image:
    kernel = item.target.kernel_version
    newest_first = tuple(-int(number) for number in re.findall(r"[0-9]+", kernel))
    return _Image(
        is_there=is_there,
        flavour=_flavour(kernel),
        rank=(newest_first, kernel),
        candidate=ReuseCandidate(kernel=kernel, image=item.image, key=request.key),
    )


def _flavour(release: str) -> str:
    """A release without its numbers: ``..--cloud-amd`` of 6.1.0-55-cloud-amd64."""
    return re.sub(r"[0-9]+", "", release)
