"""What the agent asks of a source, whatever it reads: files of the node, or a vendor's library."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from device_agent.config.config_file import Description
from device_agent.devices.model import Traits, Unit
from file_watch.inotify import Place

Known = Mapping[str, Sequence[Unit] | None]
"""Resource -> its units, the same object as long as they are the same; None while they were not looked at yet, also
after the resource was described anew."""


def unchanged(
    before: Mapping[str, tuple[Unit, ...]], made: Mapping[str, tuple[Unit, ...]]
) -> dict[str, tuple[Unit, ...]]:
    """Return what was made, with the same object as before for units that are as before."""
    return {name: before[name] if before.get(name) == units else units for name, units in made.items()}


class Source(Protocol):
    """Gives the units of resources. The agent calls its methods in one loop, and no second ``look`` beside one."""

    @property
    def name(self) -> str:
        """Return a name for logs and for what the places are watched for; no other source has it."""
        ...

    @property
    def resources(self) -> Known:
        """Return what is known now. Resources may come and go with each :meth:`look` and :meth:`configure`."""
        ...

    @property
    def missing(self) -> str:
        """Say what it cannot offer yet, and why; empty if nothing is missing."""
        ...

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake, from the loop, when another look is worth it."""
        ...

    def configure(self, description: Description) -> None:
        """Take what the configuration file describes now; called before the first look, too."""
        ...

    def places(self) -> Iterable[Place]:
        """Name the files whose change is worth a look; the trigger is the source's name."""
        ...

    async def look(self) -> None:
        """Bring :attr:`resources` up to date. It may wait, but not keep the loop; it may be cancelled."""
        ...

    def traits(self, resource: str) -> Traits:
        """Say how a resource is offered. Whether it is checked stays as it is while the resource is there."""
        ...

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Take note of which of its resources the kubelet watches now, and which another plugin has.

        Called after each look.
        """
        ...

    def commands(self, resource: str) -> Mapping[str, int]:
        """Count the commands that examined units of a resource, by result; empty where there are none."""
        ...

    async def close(self) -> None:
        """End what was started."""
        ...
