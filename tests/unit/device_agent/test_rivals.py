"""NVIDIA's plugin, or another one of ours, offers the same resource: one of the two does, whichever came first."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.devices.model import Traits, Unit, offered
from device_agent.kubelet import plugin as plugins
from device_agent.kubelet import rivals as rivals_module
from device_agent.kubelet.channel import KubeletCodec, call
from device_agent.kubelet.plugin import Plugin
from device_agent.kubelet.rivals import is_answered, rivals
from device_agent.kubelet.server import PluginServer
from device_agent.kubelet.service import DeviceService
from device_agent.protocol import messages
from device_agent.protocol.messages import Empty, RegisterRequest
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet

GPU = "nvidia.com/gpu"
PERIOD = 0.05
OURS = Unit(id="GPU-ours")
THEIRS = Unit(id="GPU-theirs")

LISTEN = """
import socket, sys
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_FIRST_DELAY", 0.02)
    monkeypatch.setattr(rivals_module, "_GONE_SECONDS", 0.1)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", ("nvidia-gpu.sock",)),
        ("nvidia.com/gpu.shared", ("nvidia-gpu.shared.sock",)),
        ("nvidia.com/mig-1g.5gb", ("nvidia-mig-1g.5gb.sock",)),
        ("nvidia.com/mig-1g.10gb.me", ("nvidia-mig-1g.10gb.me.sock",)),
        ("example.com/gpu", ()),
        ("example.com/nvidia.com", ()),
    ],
)
def test_the_sockets_of_other_plugins(resource: str, expected: tuple[str, ...]) -> None:
    """As NVIDIA's plugin names them; of other resources no other plugin is known."""
    assert rivals(resource) == expected


class Theirs:
    """NVIDIA's plugin: listens on its socket, registers once, and sends its list when it is watched.

    It is no more than the service of ours on another socket: who watches it is counted.
    """

    def __init__(self, folder: Path) -> None:
        self.service = DeviceService(GPU)
        self._folder = folder
        self._server: PluginServer | None = None

    async def start(self) -> None:
        """Listen, then register."""
        await self.service.publish(offered([THEIRS]))
        self._server = PluginServer([self.service], codec=KubeletCodec())
        await self._server.start(path=str(self._folder / "nvidia-gpu.sock"))
        request = RegisterRequest(version=messages.VERSION, endpoint="nvidia-gpu.sock", resource_name=GPU)
        await call(str(self._folder / "kubelet.sock"), messages.REGISTER, request, Empty, SECONDS)

    async def stop(self) -> None:
        """End, and remove the socket."""
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        (self._folder / "nvidia-gpu.sock").unlink(missing_ok=True)


async def leave(plugin: Plugin, registrar: asyncio.Task[None]) -> None:
    """Let a plugin leave as the agent does."""
    registrar.cancel()
    await asyncio.wait([registrar])
    await plugin.stop()


@asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[Plugin]:
    """Run our plugin."""
    plugin = Plugin(GPU, str(folder), lambda: None)
    await plugin.service.publish(offered([OURS]))
    registrar = asyncio.create_task(plugin.keep_registered(PERIOD))
    try:
        yield plugin
    finally:
        await leave(plugin, registrar)


def test_other_plugins_of_the_same_units_count_too(tmp_path: Path) -> None:
    """NVIDIA's plugin knows no name that a profile made, and gives its GPUs under their own."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        await theirs.start()
        await kubelet.next_registration()
        plugin = Plugin("nvidia.com/l4", str(tmp_path), lambda: None, Traits(beside=(GPU,)))
        registrar = asyncio.create_task(plugin.keep_registered(PERIOD))
        await until(lambda: plugin.rival == f"{tmp_path}/nvidia-gpu.sock")
        assert not plugin.is_registered
        await leave(plugin, registrar)
        await theirs.stop()

    play(tmp_path, act)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


def play(folder: Path, act: Callable[[Kubelet, Theirs], Awaitable[None]]) -> None:
    """Run a kubelet; theirs and ours are started by the test."""

    async def work() -> None:
        kubelet, theirs = Kubelet(folder), Theirs(folder)
        await kubelet.start()
        try:
            await act(kubelet, theirs)
        finally:
            await kubelet.stop()

    asyncio.run(work())


def test_a_plugin_that_was_there_first_keeps_the_resource(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ours does not register, names the socket, and takes over when it has ended. Theirs is not watched."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        await theirs.start()
        assert (await kubelet.next_registration()).endpoint == "nvidia-gpu.sock"
        assert await kubelet.next_list() == {"GPU-theirs": "Healthy"}
        async with ours(tmp_path) as plugin:
            await until(lambda: bool(plugin.rival))
            for _ in range(20):
                plugin.nudge()
                await asyncio.sleep(0.01)
            assert plugin.rival == f"{tmp_path}/nvidia-gpu.sock"
            assert not plugin.is_registered
            assert not Path(plugin.socket).exists()
            assert plugin.registrations == {"success": 0, "failure": 0}
            assert theirs.service.watchers == 1
            await theirs.stop()
            assert await kubelet.next_list() is None
            assert (await kubelet.next_registration()).endpoint == Path(plugin.socket).name
            assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
            assert plugin.is_registered
            assert plugin.rival == ""

    play(tmp_path, act)
    assert caplog.text.count("not offered: another plugin answers on") == 1


def test_a_plugin_that_comes_later_has_the_resource(tmp_path: Path) -> None:
    """The kubelet takes it. Our list stays open and says nothing, as it would be taken for theirs; then we have it."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        async with ours(tmp_path) as plugin:
            assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
            await theirs.start()
            assert await kubelet.next_list() == {"GPU-theirs": "Healthy"}
            await until(lambda: bool(plugin.rival))
            assert not plugin.is_registered
            await plugin.service.publish(offered([Unit(id="GPU-ours", why="Xid 79")]))
            await plugin.service.publish({})
            await plugin.service.publish(offered([OURS, Unit(id="GPU-new")]))
            for _ in range(20):
                plugin.nudge()
                await asyncio.sleep(0.01)
            assert kubelet.lists.empty()
            assert plugin.service.watchers == 1
            assert plugin.registrations["success"] == 1
            await theirs.stop()
            # The end of both lists, then the new one.
            assert [await kubelet.next_list(), await kubelet.next_list()] == [None, None]
            assert await kubelet.next_list() == {"GPU-ours": "Healthy", "GPU-new": "Healthy"}
            assert plugin.registrations == {"success": 2, "failure": 0}

    play(tmp_path, act)


def test_an_agent_that_ends_meanwhile_does_not_empty_the_list(tmp_path: Path) -> None:
    """Its own list ends, as it has to."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        async with ours(tmp_path) as plugin:
            assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
            await theirs.start()
            assert await kubelet.next_list() == {"GPU-theirs": "Healthy"}
            await until(lambda: bool(plugin.rival))
        assert await kubelet.next_list() is None
        assert kubelet.lists.empty()
        assert not Path(plugin.socket).exists()
        await theirs.stop()

    play(tmp_path, act)


def test_after_a_kubelet_that_restarts_theirs_has_it_again(tmp_path: Path) -> None:
    """Their socket is away for a moment, in which ours does not register: the one that comes last would have it."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        await theirs.start()
        async with ours(tmp_path) as plugin:
            await until(lambda: bool(plugin.rival))
            await kubelet.stop()
            await theirs.stop()
            await kubelet.start()
            plugin.nudge()
            await theirs.start()
            plugin.nudge()
            await until(lambda: theirs.service.watchers == 1)
            assert plugin.rival
            assert plugin.registrations == {"success": 0, "failure": 0}
        await theirs.stop()

    play(tmp_path, act)


def test_a_list_that_nobody_watches_any_more_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet has ended it: nothing of ours is left beside theirs."""
    monkeypatch.setattr(plugins, "_WATCHED_SECONDS", 0.05)

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        async with ours(tmp_path) as plugin:
            assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
            await theirs.start()
            await until(lambda: bool(plugin.rival))
            assert Path(plugin.socket).exists()
            await kubelet.stop()
            await until(lambda: not Path(plugin.socket).exists())
        await theirs.stop()

    play(tmp_path, act)


def test_a_plugin_that_is_killed_leaves_a_socket_that_counts_for_nothing(tmp_path: Path) -> None:
    """While the process lives it answers, whatever it says; the file that stays behind it does not."""
    path = str(tmp_path / "nvidia-gpu.sock")

    async def act(kubelet: Kubelet, _theirs: Theirs) -> None:
        command = [sys.executable, "-c", LISTEN, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            async with ours(tmp_path) as plugin:
                await until(lambda: bool(plugin.rival))
                process.kill()
                assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
                assert Path(path).is_socket()
                assert not await is_answered(path)

    play(tmp_path, act)


def test_two_of_ours_do_not_take_turns(tmp_path: Path) -> None:
    """The one that listens keeps it, and the other one says on which socket; beside theirs, both wait."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        async with ours(tmp_path) as first:
            assert await kubelet.next_list() == {"GPU-ours": "Healthy"}
            async with ours(tmp_path) as second:
                await until(lambda: second.registrations["failure"] >= 3)
                assert (first.is_registered, second.is_registered) == (True, False)
                assert second.rival == second.socket
                await theirs.start()
                await until(lambda: first.rival == second.rival == f"{tmp_path}/nvidia-gpu.sock")
                await theirs.stop()
                await until(lambda: first.is_registered or second.is_registered)
                has, waits = (first, second) if first.is_registered else (second, first)
                registered, failed = has.registrations["success"], waits.registrations["failure"]
                await until(lambda: waits.registrations["failure"] >= failed + 3)
                assert has.is_registered
                assert has.registrations["success"] == registered

    play(tmp_path, act)


def test_other_names_have_no_rivals(tmp_path: Path) -> None:
    """A socket of such a name is nothing to them."""

    async def act(kubelet: Kubelet, theirs: Theirs) -> None:
        await theirs.start()
        assert await kubelet.next_list() == {"GPU-theirs": "Healthy"}
        plugin = Plugin("example.com/gpu", str(tmp_path), lambda: None)
        registrar = asyncio.create_task(plugin.keep_registered(PERIOD))
        assert await kubelet.next_list() == {}
        await leave(plugin, registrar)
        await theirs.stop()

    play(tmp_path, act)
