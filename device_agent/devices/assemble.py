"""Makes units of the files that exist: the i-th match of each path makes the i-th unit of a group. Pure.

As in squat/generic-device-plugin, with one difference: what was a unit once stays one while the agent lives. A file
that vanishes would else move all files behind it into other units, some of which are in use.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from device_agent.devices.model import MAX_DEVICES, DeviceFile, Matches, Unit
from device_resources.resource import DeviceGroup, DevicePath, Resource


def assemble(resource: Resource, matches: Matches, known: Sequence[Unit]) -> tuple[Unit, ...]:
    """Make the units of a resource, those that are known first."""
    return tuple(
        unit
        for index, group in enumerate(resource.groups)
        for unit in _group(index, group, matches, [unit for unit in known if unit.group == index])
    )


def _group(index: int, group: DeviceGroup, matches: Matches, known: Sequence[Unit]) -> Iterator[Unit]:
    required = [path for path in group.paths if not path.optional]
    most = max(MAX_DEVICES // group.count, 1)
    if required:
        combinations = [unit.required for unit in known]
        combinations += _new_combinations(required, matches, known)
        for ordinal, files in enumerate(combinations[:most]):
            yield _unit(index, ordinal, files, group, matches)
        return
    # Of files that are all optional a unit has what exists, at least one.
    length = max(len(known), *(len(matches[path.path]) for path in group.paths))
    for ordinal in range(min(length, most)):
        yield _unit(index, ordinal, (), group, matches)


def _new_combinations(required: Sequence[DevicePath], matches: Matches, known: Sequence[Unit]) -> list[tuple[str, ...]]:
    free = [_free(path, matches, [unit.required[position] for unit in known]) for position, path in enumerate(required)]
    # A file may be used by several units, but no group has more units than one of its paths has matches.
    whole = sum(_is_whole(unit, required, matches) for unit in known)
    length = max(len(matches[path.path]) for path in required) - whole
    return list(zip(*free, strict=False))[: max(length, 0)]


def _free(path: DevicePath, matches: Matches, used: Sequence[str]) -> list[str]:
    """List the files that are left, each as often as it may still be used."""
    uses = Counter(used)
    left = []
    for number in range(1, path.limit + 1):
        left += [file for file in matches[path.path] if uses[file] <= path.limit - number]
        if len(left) >= MAX_DEVICES:
            break
    return left


def _is_whole(unit: Unit, required: Sequence[DevicePath], matches: Matches) -> bool:
    return all(file in matches[path.path] for path, file in zip(required, unit.required, strict=True))


def _unit(index: int, ordinal: int, required: tuple[str, ...], group: DeviceGroup, matches: Matches) -> Unit:
    wanted = iter(required)
    files = []
    for path in group.paths:
        found = matches[path.path]
        if path.optional:
            has_one = found and ordinal < len(found) * path.limit
            name = found[ordinal % len(found)] if has_one else None
        else:
            name = next(wanted)
        if name is not None and name in found:
            files.append(DeviceFile(path=name, described=path))
    return Unit(group=index, ordinal=ordinal, required=required, files=tuple(files))
