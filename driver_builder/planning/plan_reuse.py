"""Whose modules may fit a kernel that has no image yet: images of the same parts for other live kernels. Pure.

Place in the flow: ``plan_build`` puts them into the action; whether one is there and fits is seen when the build's turn
comes, for it may be built until then.
"""

import re
from dataclasses import replace

from driver_builder.model.build import BuildRequest
from driver_builder.model.image_state import Present
from driver_builder.planning.actions import ReuseCandidate
from driver_builder.planning.desired import Wanted
from driver_builder.planning.plan_view import DriverView
from driver_builder.spec.driver_spec import DriverSpec

MAX_CANDIDATES = 3
"""So many are looked into: each is fetched, and they mostly fit or fail alike."""


def candidates(view: DriverView, spec: DriverSpec, item: Wanted) -> tuple[ReuseCandidate, ...]:
    """Name the images that may fit a target, the likeliest first; none where the spec forbids it."""
    if not spec.reuse or item.request is None:
        return ()
    found = [
        (_unlikeliness(view, item, other), ReuseCandidate(kernel=kernel, image=other.image, key=other.request.key))
        for other in view.wanted
        if isinstance(other, Wanted) and other.request is not None
        if _has_same_parts(other.request, item.request)
        if (kernel := other.target.kernel_version) != item.target.kernel_version
    ]
    return tuple(candidate for _, candidate in sorted(found, key=lambda pair: pair[0])[:MAX_CANDIDATES])


def _has_same_parts(one: BuildRequest, other: BuildRequest) -> bool:
    """Whether all but the kernel is the same; a rebuild that was asked for one of them is a difference."""
    if (one.target.os, one.target.architecture) != (other.target.os, other.target.architecture):
        return False
    return replace(one, key="", target=other.target) == replace(other, key="")


def _unlikeliness(view: DriverView, item: Wanted, other: Wanted) -> tuple[bool, bool, tuple[int, ...], str]:
    """Images that are there come first, then kernels of the same flavour, then the newest."""
    mine, theirs = item.target.kernel_version, other.target.kernel_version
    is_there = isinstance(view.snapshot.image(view.driver.key, other.image), Present)
    return not is_there, _flavour(mine) != _flavour(theirs), tuple(-number for number in _numbers(theirs)), theirs


def _flavour(release: str) -> str:
    """A release without its numbers: ``..--cloud-amd`` of 6.1.0-55-cloud-amd64."""
    return re.sub(r"[0-9]+", "", release)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", release))
