"""Checks a resource's description and makes it a value. Pure.

What a table of fields cannot say is added here: fields that exclude each other, names that Kubernetes reserves.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from device_resources.fields import RESOURCE_FIELDS
from device_resources.kinds import Json, Path, Problem, shown
from device_resources.resource import DeviceGroup, DevicePath, Health, PathType, Resource

_LONGEST_DOMAIN = 244
_OF_DRIVERS = ("/run/driverwright", "/run/nvidia/driver")
"""Where drivers have what they export to containers, such as their libraries."""
_CLASS = re.compile(r"\[\^?(?:[^]/-](?:-[^]/-])?)+\]")
"""A class of characters in a glob, as Go's filepath.Match reads it."""
_MAX_LISTED = 5
"""Problems that one message lists at most."""


class InvalidResource(Exception):
    """A description is not valid. ``problems`` has every mistake with the path of its field."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        listed = [str(problem) for problem in problems[:_MAX_LISTED]]
        more = len(problems) - len(listed)
        super().__init__("; ".join((*listed, f"and {more} more problems") if more else listed))


def parse_resource(value: object, where: Path = ()) -> Resource:
    """Check a description (JSON) and make it a value; ``where`` is its path in messages.

    Raises:
        InvalidResource: naming each wrong field, its value and the remedy.
    """
    problems = RESOURCE_FIELDS.check(value, where)
    if not problems and isinstance(value, Mapping):
        problems = [*_name_problems(value["name"], (*where, "name")), *_path_problems(value, where)]
        if not problems:
            return _resource(value)
    raise InvalidResource(tuple(problems))


def resource_schema() -> Json:
    """Write what a description may hold as an OpenAPI schema, as a CRD has it."""
    return RESOURCE_FIELDS.schema()


def _name_problems(name: str, path: Path) -> list[Problem]:
    domain = name.partition("/")[0]
    if len(domain) > _LONGEST_DOMAIN:
        message = f"{shown(name)} is not valid: the part before the slash has at most {_LONGEST_DOMAIN} characters"
        return [Problem(path=path, message=message)]
    if f"{domain}/".endswith("kubernetes.io/") or domain.startswith("requests."):
        message = f"{shown(name)} is reserved by Kubernetes: use a domain of your own, such as example.com/widget"
        return [Problem(path=path, message=message)]
    return []


def _path_problems(value: Mapping[str, Any], where: Path) -> list[Problem]:
    return [
        problem
        for group_index, group in enumerate(value["groups"])
        for index, path in enumerate(group["paths"])
        for problem in (
            *_one_path_problems(path, (*where, "groups", group_index, "paths", index)),
            *_same_place_problems(group["paths"], index, (*where, "groups", group_index, "paths", index)),
        )
    ]


def _same_place_problems(paths: Sequence[Mapping[str, Any]], index: int, where: Path) -> list[Problem]:
    """Find what no container could get: another file of the same device at the same path, unless one may be missing."""
    path, place = paths[index], paths[index].get("mountPath")
    others = (other for other in paths[:index] if place is not None and other.get("mountPath") == place)
    if any(other["path"] != path["path"] and not (other.get("optional") or path.get("optional")) for other in others):
        message = f"{shown(place)} is the place of another path of this group: no container can have both"
        return [Problem(path=(*where, "mountPath"), message=message)]
    return []


def _one_path_problems(path: Mapping[str, Any], where: Path) -> list[Problem]:
    is_mount = path.get("type") == PathType.MOUNT
    problems: list[Problem] = []
    if is_mount and path.get("permissions") is not None:
        message = "only a path of type Device has permissions: use readOnly, or remove it"
        problems.append(Problem(path=(*where, "permissions"), message=message))
    if not is_mount and path.get("readOnly") is not None:
        message = "only a path of type Mount has it: use permissions: r, or remove it"
        problems.append(Problem(path=(*where, "readOnly"), message=message))
    if is_mount and path.get("readOnly") is not True and _is_of_drivers(path["path"]):
        message = "set readOnly: true, because all containers share what drivers have exported there"
        problems.append(Problem(path=(*where, "readOnly"), message=message))
    letters = path.get("permissions") or ""
    if len(set(letters)) < len(letters):
        message = f"{shown(letters)} is not valid: name each of 'mrw' at most once"
        problems.append(Problem(path=(*where, "permissions"), message=message))
    if "**" in path["path"]:
        message = f"{shown(path['path'])} is not valid: '*' matches within one folder, and '**' does not exist"
        problems.append(Problem(path=(*where, "path"), message=message))
    if "[" in _CLASS.sub("", path["path"]):
        message = f"{shown(path['path'])} is not valid: '[' begins a class of characters, such as [0-9] or [^a]"
        problems.append(Problem(path=(*where, "path"), message=message))
    return problems


def _is_of_drivers(path: str) -> bool:
    """Return whether a path is, or may be, such a place, below or above it: it may have wildcards, /var/run is /run."""
    folders = re.sub("^/var/run(?=/|$)", "/run", path).split("/")
    return any(all(map(fnmatchcase, place.split("/"), folders)) for place in _OF_DRIVERS)


def _resource(value: Mapping[str, Any]) -> Resource:
    return Resource(
        name=value["name"],
        groups=tuple(_group(group) for group in value["groups"]),
        health=_health(value.get("health") or {}),
        environment=dict(value.get("environment") or {}),
    )


def _group(group: Mapping[str, Any]) -> DeviceGroup:
    return DeviceGroup(count=_or(group.get("count"), 1), paths=tuple(_path(path) for path in group["paths"]))


def _path(path: Mapping[str, Any]) -> DevicePath:
    return DevicePath(
        path=path["path"],
        mount_path=path.get("mountPath"),
        permissions=_or(path.get("permissions"), "mrw"),
        read_only=path.get("readOnly") is True,
        type=PathType(_or(path.get("type"), PathType.DEVICE)),
        limit=_or(path.get("limit"), 1),
        optional=path.get("optional") is True,
    )


def _health(health: Mapping[str, Any]) -> Health:
    return Health(
        driver=health.get("driver"),
        pci=health.get("pci") is True,
        command=tuple(health.get("command") or ()),
        timeout_seconds=_or(health.get("timeoutSeconds"), Health().timeout_seconds),
        period_seconds=_or(health.get("periodSeconds"), Health().period_seconds),
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
