"""Makes units of the files that exist: the i-th match of each path makes the i-th unit of a group. Pure.

As in squat/generic-device-plugin, with two differences. What was a unit once stays one while the agent lives: a file
that vanishes would else move all files behind it into other units, some of which are in use. And where paths name files
alike (``/dev/card*`` and ``/dev/ctl*``), those with the same number are one unit, and a file without its counterpart is
none: an agent that has just started knows no units.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from device_agent.devices.model import MAX_DEVICES
from device_agent.sources.files.file_unit import FileUnit, Matches, unit_file
from device_resources.resource import DeviceGroup, DevicePath, Resource

_GLOB = re.compile(r"\*+|\?|\[[^]]*\]")
"""The parts of a glob that match more than themselves."""


class _Found(NamedTuple):
    """The paths that match a glob: in their order, and to ask whether one is there."""

    listed: Sequence[str]
    there: frozenset[str]


def assemble(resource: Resource, matches: Matches, known: Sequence[FileUnit]) -> tuple[FileUnit, ...]:
    """Make the units of a resource, those that are known first."""
    found = {glob: _Found(listed, frozenset(listed)) for glob, listed in matches.items()}
    return tuple(
        unit
        for index, group in enumerate(resource.groups)
        for unit in _group(index, group, found, [unit for unit in known if unit.group == index])
    )


def _group(
    index: int, group: DeviceGroup, found: Mapping[str, _Found], known: Sequence[FileUnit]
) -> Iterator[FileUnit]:
    required = [path for path in group.paths if not path.optional]
    # One more than is offered, so that it is seen that there are more.
    most = MAX_DEVICES // group.count + 1
    if required:
        combinations = [unit.required for unit in known]
        combinations += _new_combinations(required, found, known)
        for ordinal, files in enumerate(combinations[:most]):
            yield _unit(index, ordinal, files, group, found)
        return
    # Of files that are all optional a unit has what exists, at least one.
    length = max(len(known), *(len(found[path.path].listed) for path in group.paths))
    for ordinal in range(min(length, most)):
        yield _unit(index, ordinal, (), group, found)


def _new_combinations(
    required: Sequence[DevicePath], found: Mapping[str, _Found], known: Sequence[FileUnit]
) -> list[tuple[str, ...]]:
    listed = _counterparts([(path.path, found[path.path].listed) for path in required])
    free = [
        _free(path, files, [unit.required[position] for unit in known])
        for position, (path, files) in enumerate(zip(required, listed, strict=True))
    ]
    # A file may be used by several units, but no group has more units than one of its paths has matches.
    whole = sum(_is_whole(unit, required, found) for unit in known)
    length = max(map(len, listed)) - whole
    return list(zip(*free, strict=False))[: max(length, 0)]


def _counterparts(matches: Sequence[tuple[str, Sequence[str]]]) -> list[Sequence[str]]:
    """Return the matches of each glob, without those that others name alike and that have no counterpart there.

    Where no two are alike, as with ``/dev/nvidia*`` and ``/dev/dri/renderD*``, the first goes with the first.
    """
    parts = {index: {_variable_part(glob, file): file for file in files}
             for index, (glob, files) in enumerate(matches) if _GLOB.search(glob)}  # fmt: skip
    is_clear = len(parts) > 1 and all(len(parts[index]) == len(matches[index][1]) for index in parts)
    alike = set[str]().union(*parts.values()).intersection(*parts.values()) if is_clear else set[str]()
    if not alike:
        return [files for _, files in matches]
    order = [part for part in next(iter(parts.values())) if part in alike]
    return [
        [parts[index][part] for part in order] if index in parts else files for index, (_, files) in enumerate(matches)
    ]


def _variable_part(glob: str, file: str) -> str:
    """Return what stands in a file's path from the first to the last variable part of a glob."""
    spans = [found.span() for found in _GLOB.finditer(glob)]
    return file[spans[0][0] : len(file) - (len(glob) - spans[-1][1])]


def _free(path: DevicePath, listed: Sequence[str], used: Sequence[str]) -> list[str]:
    """List the files that are left, each as often as it may still be used."""
    uses = Counter(used)
    left: list[str] = []
    for number in range(1, path.limit + 1):
        left += [file for file in listed if uses[file] <= path.limit - number]
        if len(left) >= MAX_DEVICES:
            break
    return left


def _is_whole(unit: FileUnit, required: Sequence[DevicePath], found: Mapping[str, _Found]) -> bool:
    return all(file in found[path.path].there for path, file in zip(required, unit.required, strict=True))


def _unit(
    index: int, ordinal: int, required: tuple[str, ...], group: DeviceGroup, found: Mapping[str, _Found]
) -> FileUnit:
    wanted = iter(required)
    files = []
    for path in group.paths:
        listed, there = found[path.path]
        if path.optional:
            has_one = listed and ordinal < len(listed) * path.limit
            name = listed[ordinal % len(listed)] if has_one else None
        else:
            name = next(wanted)
        if name is not None and name in there:
            files.append(unit_file(name, path))
    return FileUnit(group=index, ordinal=ordinal, required=required, files=tuple(files))
