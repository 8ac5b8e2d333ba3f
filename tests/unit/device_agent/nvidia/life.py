"""An agent with ``nvidia:`` at work, for tests: between a kubelet and a container ``nvml``."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from device_agent import gpus
from device_agent.agent import Agent
from device_agent.config.config_file import read_description
from device_agent.config.options import Settings
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.nvidia_source import NvidiaSource
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml

if TYPE_CHECKING:
    from device_agent.gpus import MakeOwnNode

_NEVER = 300.0
"""An interval that no test waits for: what is seen was woken up for."""
_PATIENT = Timing(silence=SECONDS, first_state=SECONDS, moment=SECONDS, slow=2 * SECONDS)
"""The stand-in for the container ``nvml`` gives no signs of life, and a busy machine may stop for half a minute."""


@dataclass
class Life:
    """An agent at work."""

    nvml: Nvml
    kubelet: Kubelet
    config: Path
    folder: Path

    async def list_of(self, expected: dict[str, str]) -> None:
        """Wait for a list."""
        while (found := await self.kubelet.next_list()) != expected:
            assert found is not None


def settings_of(folder: Path) -> Settings:
    """Return the settings of an agent in a folder."""
    return Settings(
        config_file=str(folder / "config.yaml"),
        root=str(folder),
        plugin_dir=str(folder / "plugins"),
        port=0,
        interval=_NEVER,
        state_dir=str(folder / "state"),
        nvml_socket=str(folder / "nvml.sock"),
        report_dir=str(folder),
    )


def play(
    folder: Path,
    act: Callable[[Life], Awaitable[None]],
    config: str = "nvidia: {}\n",
    settings: Settings | None = None,
    own_node: "MakeOwnNode" = lambda *_: None,
) -> None:
    """Run an agent, act, and end it as the kubelet does. ``own_node``: follows its Node."""
    settings, plugins = settings or settings_of(folder), folder / "plugins"
    plugins.mkdir(exist_ok=True)
    Path(settings.config_file).write_text(config)
    load = partial(read_description, settings.config_file)

    async def work() -> None:
        kubelet, nvml = Kubelet(plugins), Nvml(folder)
        running = asyncio.create_task(Agent(settings, load(), load, own_node=own_node).run())
        try:
            await kubelet.start()
            async with asyncio.timeout(5 * SECONDS):
                await act(Life(nvml, kubelet, Path(settings.config_file), folder))
        finally:
            if not running.done():  # otherwise nobody would handle it, and this process would end
                os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                await running
            await nvml.stop()
            await kubelet.stop()

    with patch.object(gpus, "NvidiaSource", partial(NvidiaSource, timing=_PATIENT)):
        asyncio.run(work())
