"""Monitoring over its life: what a probe hears of it, and what is read again."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.allocations.remembered import Allocations
from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.followed import Followed
from device_agent.monitoring import Monitoring
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.source import Source
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.unit.device_agent.exporter.test_at_work import get
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.memory_limits.examples import CARD, SHARED
from tests.unit.device_agent.nvidia.life import Life, play, settings_of

WATCH = Description(memory=MemorySettings(mode=MemoryMode.WATCH))


def monitor(settings: Settings, act: Callable[[Monitoring], Awaitable[None]], given: Allocations | None = None) -> None:
    """Keep limits, and act. ``given``: what is remembered of what was given."""

    async def work() -> None:
        source: Source = FilesSource(settings.root)
        monitoring = Monitoring(settings, [Followed(source, settings, (), lambda: None, given)], {}, lambda: None)
        monitoring.configure(WATCH)
        try:
            async with asyncio.timeout(SECONDS):
                await act(monitoring)
        finally:
            await monitoring.stop()

    asyncio.run(work())


def test_a_probe_hears_of_what_has_ended(tmp_path: Path) -> None:
    """Which nobody has foreseen: here, a path that no socket can have. A restart may help; nothing else does."""

    async def act(monitoring: Monitoring) -> None:
        assert monitoring.trouble == ""
        while not monitoring.trouble:
            await asyncio.sleep(0.01)
        assert monitoring.trouble.startswith("who has which device is not followed any more: UnicodeEncodeError")
        with pytest.raises(UnicodeEncodeError):
            monitoring.metrics()
        monitoring.configure(Description())
        assert monitoring.trouble == ""

    monitor(settings_of(tmp_path)._replace(nvml_socket=f"{tmp_path}/\ud800"), act)


def test_the_agents_probe_hears_of_it(tmp_path: Path) -> None:
    """Its devices are offered all the same."""
    pages = str(tmp_path / "pages.sock")
    settings = settings_of(tmp_path)._replace(nvml_socket=f"{tmp_path}/\ud800", socket=pages)

    async def act(_life: Life) -> None:
        while "not followed any more" not in (text := await get(pages, "/healthz") or ""):
            await asyncio.sleep(0.01)
        assert "503 Service Unavailable" in text

    play(tmp_path, act, "resources: []\nmemory: {mode: watch}\n", settings)


def test_what_was_given_is_read_again_until_it_can_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it a share's limit is not known; it is logged once."""
    folder = tmp_path / "state"
    folder.touch()
    given = Allocations(str(folder))

    async def act(_monitoring: Monitoring) -> None:
        while "it is tried again" not in caplog.text:
            await asyncio.sleep(0.01)
        folder.unlink()
        folder.mkdir()
        entry = {"resource": SHARED, "id": f"{CARD}::0", "identity": ["/dev/nvidia0"], "shares": 4}
        (folder / "allocations.json").write_text(json.dumps({"version": 1, "given": [entry]}))
        while given.given is None:
            await asyncio.sleep(0.01)
        assert [one.shares for one in given.given.values()] == [4]

    with caplog.at_level(logging.WARNING):
        monitor(settings_of(tmp_path), act, given)
    assert caplog.text.count("cannot read what was given in") == 1


@pytest.mark.parametrize(
    ("is_switched_off", "limits"),
    [pytest.param(True, [None, []], id="memory is off"), pytest.param(False, [None], id="the agent ends")],
)
def test_limits_of_drivers_are_lifted_when_the_configuration_says_so(
    tmp_path: Path, is_switched_off: bool, limits: list[object]
) -> None:
    """Not when the agent ends: it may be back soon, and its first request leaves them as they are."""
    heard: list[object] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            heard.append(json.loads(line)["limits"])
        writer.close()
        heard.append("end")

    async def act(monitoring: Monitoring) -> None:
        async with await asyncio.start_unix_server(listen, f"{tmp_path}/nvml.sock"):
            while not heard:
                await asyncio.sleep(0.01)
            if is_switched_off:
                monitoring.configure(Description())
            await monitoring.stop()
            while "end" not in heard:
                await asyncio.sleep(0.01)

    monitor(settings_of(tmp_path)._replace(nvml_socket=f"{tmp_path}/nvml.sock"), act)
    assert heard == [*limits, "end"]
