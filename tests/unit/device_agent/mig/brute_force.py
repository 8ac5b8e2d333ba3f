"""All layouts that a model's table allows, found by filling the slices of an empty card from the left."""

from collections.abc import Iterator

from device_agent.mig.model import Model, Profile

Layout = tuple[tuple[int, str], ...]
"""Where each instance starts, and its profile."""


def layouts(model: Model, slice_: int = 0, media: int = 0) -> Iterator[Layout]:
    """Yield each way to fill the slices from one on, also in part."""
    if slice_ == 8:
        yield ()
        return
    yield from layouts(model, slice_ + 1, media)
    for profile in model.profiles:
        uses = media + ("+me" in profile.name)
        if slice_ in profile.starts and uses <= 1 and slice_ + profile.size <= 8:
            for rest in layouts(model, slice_ + profile.size, uses):
                yield ((slice_, profile.name), *rest)


def multisets(model: Model) -> frozenset[tuple[int, ...]]:
    """Return how many of each profile some layout has, in the order of the model's table."""
    names = [profile.name for profile in model.profiles]
    return frozenset(tuple([name for _, name in one].count(name) for name in names) for one in layouts(model))


def profile_of(model: Model, name: str) -> Profile:
    """Find a profile that is there."""
    (found,) = (one for one in model.profiles if one.name == name)
    return found
