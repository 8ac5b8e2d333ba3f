"""An agent whose devices come from a source of a test: ``python -m tests.support.real_parts.source_agent FILE DIR``.

FILE is JSON, resource -> a list of units; it is read again when it changes. DIR is the kubelet's folder of plugins.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from device_agent.agent import Agent
from device_agent.cli.start import without_tls
from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.devices.model import PLAIN, BindMount, Traits, Unit
from device_agent.sources.source import Known
from file_watch.inotify import Place


class JsonSource:
    """Reads units from a file."""

    name = "json"
    missing = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.resources: Known = {}

    def start(self, wake: Callable[[], None]) -> None:
        """Be woken by the file alone."""

    def configure(self, description: Description) -> None:
        """Take no configuration."""

    def places(self) -> Iterator[Place]:
        """Name the file."""
        yield Place(str(self._path), self.name, levels=0)

    async def look(self) -> None:
        """Read the file."""
        described = json.loads(self._path.read_text())
        self.resources = {name: tuple(_unit(**unit) for unit in units) for name, units in described.items()}

    def traits(self, _resource: str) -> Traits:
        """Decide nothing."""
        return PLAIN

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Take no note."""

    def commands(self, _resource: str) -> Mapping[str, int]:
        """Run no command."""
        return {}

    async def close(self) -> None:
        """Leave nothing."""


def _unit(mounts: Mapping[str, str], **fields: object) -> Unit:
    files = tuple(BindMount(path=path, mount_path=mount_path) for path, mount_path in mounts.items())
    return Unit(files=files, **fields)  # type: ignore[arg-type]


if __name__ == "__main__":
    without_tls()
    settings = Settings(plugin_dir=sys.argv[2], port=0, interval=300.0)
    asyncio.run(Agent(settings, Description(), Description, [JsonSource(Path(sys.argv[1]))]).run())
