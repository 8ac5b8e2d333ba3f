"""Kernel mappings that are well-formed but odd. Pure.

Place in the flow: ``lint`` calls it; the controller just takes the first mapping that matches.
"""

import re
from collections.abc import Iterable, Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import KernelMapping, LoadedBy
from driver_builder.base.check_result import Remark, Status

_SAFE = re.compile(r"[A-Za-z0-9_~:,@=%&/ -]")
_ESCAPED = re.compile(r"\\([^A-Za-z0-9])|\[([^\\^\]])\]")
_QUANTIFIERS = frozenset("*+?{")


def _at(index: int, message: str, status: Status = Status.WARNING) -> Remark:
    """Make the remark on ``kernelMappings[index]``; an error if it cannot be intended."""
    return Remark(("spec", "kernelMappings", index), message, status)


def oddities(mappings: tuple[KernelMapping, ...], kernels: Iterable[str] | None) -> Iterator[Remark]:
    """Find mappings that never apply, or that give several kernels one image.

    ``kernels`` are the releases that nodes run, None if they are not known.
    """
    hidden = dict(_hidden(mappings))
    for index, by in hidden.items():
        yield _at(
            index,
            f"never applies: kernelMappings[{by}] ({_pattern_of(mappings[by])}) comes first and matches every "
            "kernel that this one matches; put this one first, or remove it",
            Status.FAILED,
        )
    yield from _shared_images(mappings)
    taken = _taken(mappings, kernels) if kernels is not None else None
    for index, mapping in enumerate(mappings):
        if index in hidden:
            continue
        if taken is not None and not taken[index]:
            yield _at(index, f"{_pattern_of(mapping)} matches no kernel that the nodes run now")
        if mapping.image is not None and mapping.literal is None and not mapping.vendor.is_for_many_kernels:
            yield from _several(index, mapping, taken[index] if taken is not None else None)


def untrusted(spec: DriverSpec) -> Iterator[Remark]:
    """Find vendors' images that are not rolled out unless somebody has labelled them."""
    for index, mapping in enumerate(spec.kernel_mappings):
        if mapping.vendor.is_for_many_kernels and not spec.module.trust_image:
            yield _at(
                index,
                f"image {mapping.image} is not rolled out if it does not say which modules it has, as vendors' "
                "images do not: set spec.module.trustImage: true, or label it (docs/registry.md)",
            )


def undrained(spec: DriverSpec) -> Iterator[Remark]:
    """Find images whose own program may unload the driver under what uses it."""
    for index, mapping in enumerate(spec.kernel_mappings):
        if mapping.vendor.loader is LoadedBy.IMAGE and spec.rollout.drain is None:
            yield _at(
                index,
                f"image {mapping.image} may unload its modules when its pod is replaced, and what uses them is "
                "not drained before: set spec.rollout.drain",
            )


def _pattern_of(mapping: KernelMapping) -> str:
    # Not quoted by Python: an expression's backslashes are shown as they were written.
    return f"regexp '{mapping.pattern.pattern}'" if mapping.literal is None else f"literal '{mapping.literal}'"


def _hidden(mappings: tuple[KernelMapping, ...]) -> Iterator[tuple[int, int]]:
    """Pair each mapping that can never match with the earlier one that takes everything from it."""
    for index, mapping in enumerate(mappings):
        for before, earlier in enumerate(mappings[:index]):
            if covers(earlier, mapping):
                yield index, before
                break


def covers(earlier: KernelMapping, later: KernelMapping) -> bool:
    """Return whether a mapping certainly matches every kernel that another one matches.

    Decided for literals, for equal expressions, and for ``PREFIX.*`` before an expression with the same prefix; for
    everything else the result is False.
    """
    if later.literal is not None:
        return earlier.pattern.fullmatch(later.literal) is not None
    if earlier.pattern.pattern == later.pattern.pattern:
        return True
    prefix, rest = _leading(earlier.pattern.pattern)
    if earlier.literal is not None or rest != ".*":
        return False
    begins, _ = _leading(later.pattern.pattern)
    return len(prefix) <= len(begins) and all(
        wanted in (None, given) for wanted, given in zip(prefix, begins, strict=False)
    )


def _leading(regexp: str) -> tuple[list[str | None], str]:
    """Split an expression into the single characters it begins with (None is any character) and the rest."""
    found: list[str | None] = []
    rest = regexp.removeprefix("^")
    # Alternatives need not begin alike.
    while rest and "|" not in regexp:
        escaped = _ESCAPED.match(rest)
        if escaped:
            character: str | None = escaped[1] or escaped[2]
        elif rest[0] == "." or _SAFE.match(rest):
            character = None if rest[0] == "." else rest[0]
        else:
            break
        width = escaped.end() if escaped else 1
        if rest[width : width + 1] in _QUANTIFIERS:
            break
        found.append(character)
        rest = rest[width:]
    return found, rest


def _shared_images(mappings: tuple[KernelMapping, ...]) -> Iterator[Remark]:
    first: dict[str, int] = {}
    for index, mapping in enumerate(mappings):
        if mapping.image is None or mapping.vendor.is_for_many_kernels:
            continue
        before = first.setdefault(mapping.image, index)
        if before != index:
            yield _at(
                index,
                f"image {mapping.image} is also that of kernelMappings[{before}]: a driver image loads "
                "on one kernel only",
                Status.FAILED,
            )


def _several(index: int, mapping: KernelMapping, kernels: list[str] | None) -> Iterator[Remark]:
    reason = "a driver image loads on one kernel only: use literal"
    if kernels is None:
        yield _at(index, f"{_pattern_of(mapping)} may match several kernels: {reason}")
    elif len(kernels) > 1:
        message = f"image {mapping.image} is for kernels {', '.join(kernels)}: {reason}"
        yield _at(index, message, Status.FAILED)


def _taken(mappings: tuple[KernelMapping, ...], kernels: Iterable[str]) -> list[list[str]]:
    """Assign each kernel to the first mapping that matches it."""
    taken: list[list[str]] = [[] for _ in mappings]
    for kernel in sorted(set(kernels)):
        for index, mapping in enumerate(mappings):
            if mapping.pattern.fullmatch(kernel):
                taken[index].append(kernel)
                break
    return taken
