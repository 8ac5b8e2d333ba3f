"""The agent's loop: what wakes it, what it offers, and how it ends."""

import asyncio
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from device_agent import agent as agents
from device_agent.agent import Agent
from device_agent.cli.main import run
from device_agent.config.config_file import Description, read_description
from device_agent.config.options import Settings
from device_agent.errors import ConfigurationError
from testbed import metrics
from testbed.ports import free_ports
from tests.unit.device_agent.host_tree import HostTree, needs_root
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet

SOCKET = "pages.sock"
CONFIG = """\
resources:
- name: example.com/card
  groups:
  - paths: [{path: /dev/card*}]
"""
NEVER = 300.0
"""An interval that no test waits for: what is seen was woken up for."""


@dataclass
class Life:
    """An agent at work, with its host and its kubelet."""

    host: HostTree
    kubelet: Kubelet
    config: Path
    port: int

    async def page(self, path: str) -> str:
        """Read a page of the agent; the text of a refusal, too."""
        return await asyncio.to_thread(_page, f"http://127.0.0.1:{self.port}{path}")

    async def metric(self, line: str) -> bool:
        """Wait until the metrics have a line."""
        while line not in (await self.page("/metrics")).splitlines():
            await asyncio.sleep(0.02)
        return True

    async def counted(self, series: str) -> bool:
        """Wait until something was counted: how often depends on how busy the machine is."""
        while metrics.total(await self.page("/metrics"), series) < 1:
            await asyncio.sleep(0.02)
        return True


def _page(url: str) -> str:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - a page of our own
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())
        except urllib.error.URLError:  # it does not listen yet
            time.sleep(0.02)


Act = Callable[[Life], Awaitable[None]]


def play(folder: Path, act: Act, config: str = CONFIG, interval: float = NEVER) -> None:
    """Run an agent, act, and end it as the kubelet does."""
    host = HostTree(folder / "host")
    plugins, file = folder / "plugins", folder / "config" / "config.yaml"
    for path in (host.root / "dev", plugins, file.parent):
        path.mkdir(parents=True)
    file.write_text(config)
    (port,) = free_ports(1)
    settings = Settings(config_file=str(file), root=host.path, plugin_dir=str(plugins), port=port, interval=interval,
                        socket=str(folder / SOCKET))  # fmt: skip
    load = partial(read_description, str(file))

    async def work() -> None:
        kubelet = Kubelet(plugins)
        running = asyncio.create_task(Agent(settings, load(), load).run())
        acting = asyncio.create_task(_limited(act, Life(host, kubelet, file, port)))
        try:
            await asyncio.wait((running, acting), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            os.kill(os.getpid(), signal.SIGTERM)
            await acting
        finally:
            await running
            await kubelet.stop()

    asyncio.run(work())
    assert not list(plugins.glob("driverwright-*"))


async def _limited(act: Act, life: Life) -> None:
    async with asyncio.timeout(5 * SECONDS):
        await act(life)


@needs_root
def test_devices_that_come_and_go_are_seen_at_once(tmp_path: Path) -> None:
    """The list is empty, then it has a device, which vanishes and comes back."""

    async def act(life: Life) -> None:
        await life.kubelet.start()
        assert await life.kubelet.next_list() == {}
        life.host.node("/dev/card0")
        assert list((await life.kubelet.next_list() or {}).values()) == ["Healthy"]
        life.host.remove("/dev/card0")
        assert list((await life.kubelet.next_list() or {}).values()) == ["Unhealthy"]
        life.host.node("/dev/card0")
        assert list((await life.kubelet.next_list() or {}).values()) == ["Healthy"]
        assert await life.metric('device_agent_health_changes_total{resource="example.com/card"} 2')

    play(tmp_path, act)


@needs_root
def test_an_agent_that_ends_empties_its_list(tmp_path: Path) -> None:
    """On SIGTERM, before its socket goes."""
    ended: list[dict[str, str] | None] = []

    async def act(life: Life) -> None:
        life.host.node("/dev/card0")
        await life.kubelet.start()
        while not await life.kubelet.next_list():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        ended.extend([await life.kubelet.next_list(), await life.kubelet.next_list()])

    play(tmp_path, act)
    assert ended == [{}, None]


def test_a_kubelet_that_restarts_is_seen_at_once(tmp_path: Path) -> None:
    """By inotify on its socket; ready means registered."""

    async def act(life: Life) -> None:
        assert await life.page("/readyz") == "not registered: example.com/card\n"
        for _ in range(2):
            await life.kubelet.start()
            await life.kubelet.next_registration()
            assert await life.kubelet.next_list() == {}
            assert await life.page("/readyz") == "ok\n"
            await life.kubelet.stop()
        assert await life.page("/healthz") == "ok\n"
        assert "/healthz, /readyz and /metrics" in await life.page("/")

    play(tmp_path, act)


def test_a_probe_asks_by_a_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status says whether a page is fine; the socket of an agent that was killed is no hindrance."""
    path = tmp_path / SOCKET
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    where, ended = {"DEVICE_AGENT_SOCKET": str(path)}, []

    async def get(page: str) -> int:
        return await asyncio.to_thread(run, ["get", page], where)

    async def act(life: Life) -> None:
        await life.page("/healthz")
        ended.extend([await get("/readyz"), await get("/healthz"), await get("/other")])
        await life.kubelet.start()
        await life.kubelet.next_registration()
        await life.kubelet.next_list()
        ended.append(await get("/readyz"))
        assert await asyncio.to_thread(run, ["get", "/healthz"], {"DEVICE_AGENT_PORT": str(life.port)}) == 0

    play(tmp_path, act)
    assert ended == [1, 0, 1, 0]
    assert "not registered: example.com/card" in capsys.readouterr().out
    assert run(["get", "/healthz"], where) == 1
    assert f"no agent answers at {path}" in capsys.readouterr().err


def test_a_wrong_configuration_leaves_the_last_good_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The mistake is logged with the nearest known field, and the metrics show it until it is corrected."""

    async def act(life: Life) -> None:
        await life.kubelet.start()
        await life.kubelet.next_registration()
        life.config.write_text(CONFIG.replace("groups", "gruops"))
        assert await life.metric("device_agent_config_current 0")
        assert await life.metric('device_agent_registered{resource="example.com/card"} 1')
        life.config.write_text(CONFIG.replace("card", "other"))
        assert (await life.kubelet.next_registration()).resource_name == "example.com/other"
        assert await life.metric("device_agent_config_current 1")
        assert 'resource="example.com/card"' not in await life.page("/metrics")

    play(tmp_path, act)
    assert "resources[0].gruops: there is no such field; did you mean groups?" in caplog.text


@needs_root
def test_a_changed_description_keeps_the_registration(tmp_path: Path) -> None:
    """The devices are other ones, and the kubelet is not asked again."""

    async def act(life: Life) -> None:
        life.host.node("/dev/card0")
        await life.kubelet.start()
        while not await life.kubelet.next_list():
            pass
        life.config.write_text(CONFIG.replace("- paths", "- count: 3\n    paths"))
        assert len(await life.kubelet.next_list() or {}) == 3
        assert life.kubelet.registered.qsize() == 1

    play(tmp_path, act)


@needs_root
def test_a_command_that_fails_and_recovers(tmp_path: Path) -> None:
    """What a command says changes the device's health, and is asked again after its period."""
    good = tmp_path / "good"
    health = f"  health: {{command: [/usr/bin/test, -e, {good}], periodSeconds: 5}}\n"

    async def act(life: Life) -> None:
        life.host.node("/dev/card0")
        await life.kubelet.start()
        assert await life.counted('device_agent_health_commands_total{resource="example.com/card",result="failure"}')
        good.touch()
        assert await life.metric('device_agent_devices{resource="example.com/card",health="healthy"} 1')

    play(tmp_path, act, CONFIG + health, interval=1.0)


def test_a_port_that_is_in_use_is_an_error(tmp_path: Path) -> None:
    """The agent does not start, and says what to do."""

    async def act() -> None:
        server = await asyncio.start_server(lambda *_: None, None, 0)
        settings = Settings(port=server.sockets[0].getsockname()[1], plugin_dir=str(tmp_path))
        async with server:
            with pytest.raises(ConfigurationError, match="choose another with --port"):
                await Agent(settings, Description(), Description).run()

    asyncio.run(act())


def test_an_agent_whose_loop_hangs_is_not_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet restarts it."""
    monkeypatch.setattr(agents, "_OVERDUE_SECONDS", -1e9)

    async def act(life: Life) -> None:
        assert await life.page("/healthz") == "the devices were not looked at for too long\n"

    play(tmp_path, act)
