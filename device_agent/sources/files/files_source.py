"""The files of the node as a source: the resources that the configuration file describes."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from device_agent.config.config_file import Description
from device_agent.devices.model import PLAIN, Traits, Unit
from device_agent.sources.files.command import CommandChecks, Running
from device_agent.sources.files.file_unit import FileUnit, UnitState, units_of
from device_agent.sources.files.find import fixed_folder
from device_agent.sources.files.scan import found, judged
from device_agent.sources.in_thread import in_thread
from device_agent.sources.source import Known
from device_resources.resource import Resource
from file_watch.inotify import Place

log = logging.getLogger(__name__)


class FilesSource:
    """Finds units by globs. ``root``: what stands for the node's ``/``."""

    name = "files"
    missing = ""

    def __init__(self, root: str) -> None:
        self._root = root
        self._running = Running()
        self._described: dict[str, _Described] = {}
        self._left: list[_Described] = []

    @property
    def resources(self) -> Known:
        """Return the units of all that is described."""
        return {name: one.units for name, one in self._described.items()}

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake when a command's verdict is another one."""
        self._wake = wake

    def configure(self, description: Description) -> None:
        """Describe these resources and no others; what was known of one that is described anew counts no more."""
        before = self._described
        self._described = {}
        for resource in description.resources:
            one = before.get(resource.name)
            if one is None or one.resource != resource:
                one = _Described(resource, CommandChecks(resource.health, self._running, self._wake))
            self._described[resource.name] = one
        self._left += [one for name, one in before.items() if self._described.get(name) is not one]

    def places(self) -> Iterator[Place]:
        """Name the folders in which files of devices come and go."""
        root = self._root.rstrip("/")
        paths = [path for one in self._described.values() for group in one.resource.groups for path in group.paths]
        for folder, levels in sorted({fixed_folder(path.path) for path in paths}):
            # In /dev somebody always writes to /dev/null.
            yield Place(f"{root}{folder}", self.name, levels=min(levels, 2), contents=False)

    async def look(self) -> None:
        """Look at all files, then ask the commands that are due."""
        while self._left:
            await self._left[-1].checks.stop()
            self._left.pop()
        described = tuple(self._described.values())
        for one, states in zip(described, await in_thread(lambda: self._found(described), self.name), strict=True):
            if isinstance(states, OSError):
                log.warning("%s: not looked at, its devices stay as they were: %s", one.resource.name, states)
            elif self._described.get(one.resource.name) is one:  # and not described anew meanwhile
                one.take(states)
        self._running.collect_strays()

    def traits(self, resource: str) -> Traits:  # noqa: ARG002 - all are alike
        """Say that nothing is decided about a resource."""
        return PLAIN

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Take no note."""

    def commands(self, resource: str) -> Mapping[str, int]:
        """Count the commands of a resource."""
        return self._described[resource].checks.counts

    async def close(self) -> None:
        """End all commands."""
        await asyncio.gather(*(one.checks.stop() for one in (*self._left, *self._described.values())))

    def _found(self, described: Sequence["_Described"]) -> list[tuple[UnitState, ...] | OSError]:
        return [self._found_one(one) for one in described]

    def _found_one(self, one: "_Described") -> tuple[UnitState, ...] | OSError:
        try:
            return found(self._root, one.resource, one.known)
        except OSError as error:
            return error


class _Described:
    """A resource as it is described, and what is known of it. ``known``: its units at the last look."""

    def __init__(self, resource: Resource, checks: CommandChecks) -> None:
        self.resource = resource
        self.checks = checks
        self.known: tuple[FileUnit, ...] = ()
        self.units: tuple[Unit, ...] | None = None

    def take(self, states: Sequence[UnitState]) -> None:
        """Take what was found, and what the commands say."""
        asked: set[str] = set()

        def verdict(unit: FileUnit) -> str:
            asked.add(unit.id)
            return self.checks.verdict(unit)

        if self.resource.health.command:
            states = judged(states, verdict)
            self.checks.forget(lambda name: name not in asked)
        if not self._has(states):  # there may be thousands
            self.known = tuple(state.unit for state in states)
            self.units = units_of(self.resource, states)

    def _has(self, states: Sequence[UnitState]) -> bool:
        if self.units is None or len(states) != len(self.units):
            return False
        known = zip(states, self.known, self.units, strict=True)
        return all(
            state.unit == file_unit and state.why == unit.why and state.numa_nodes == unit.numa_nodes
            for state, file_unit, unit in known
        )
