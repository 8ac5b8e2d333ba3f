"""A resource at a kubelet that restarts, refuses, does not answer, or forgets to watch."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from device_agent.kubelet import plugin as plugins
from device_agent.kubelet.server import PluginServer
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    Empty,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    RegisterRequest,
)
from device_agent.sources.files.assemble import assemble
from device_agent.sources.files.file_unit import UnitState
from tests.unit.device_agent.file_devices import Plugin, offered
from tests.unit.device_agent.host_tree import resource
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet

CARDS = resource("/dev/a*")
PERIOD = 0.05

Act = Callable[[Kubelet, Plugin], Awaitable[None]]


async def show(plugin: Plugin, **why: str) -> list[str]:
    """Publish devices by name, each healthy or with what is wrong; returns their ids."""
    units = assemble(CARDS, {"/dev/a*": [f"/dev/{name}" for name in why]}, ())
    devices = offered(CARDS, [UnitState(unit=unit, why=text) for unit, text in zip(units, why.values(), strict=True)])
    await plugin.service.publish(devices)
    return list(devices)


async def leave(plugin: Plugin, registrar: asyncio.Task[None]) -> None:
    """Let a plugin leave as the agent does: a registration that is under way ends first."""
    registrar.cancel()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([registrar])
    await plugin.stop()


def play(folder: Path, act: Act, after: Callable[[Kubelet, Plugin], Awaitable[None]] | None = None) -> None:
    """Run a plugin beside a kubelet that is not started yet; look ``after`` the plugin has left."""

    async def work() -> None:
        kubelet, plugin = Kubelet(folder), Plugin(CARDS, str(folder), lambda: None)
        registrar = asyncio.create_task(plugin.keep_registered(PERIOD))
        try:
            await act(kubelet, plugin)
        finally:
            await leave(plugin, registrar)
            try:
                await (after or _nothing)(kubelet, plugin)
            finally:
                await kubelet.stop()

    asyncio.run(work())


async def _nothing(_kubelet: Kubelet, _plugin: Plugin) -> None:
    pass


def test_a_resource_is_registered_and_its_list_follows(tmp_path: Path) -> None:
    """The kubelet gets the list, each change of it, and no repetition."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        (name,) = await show(plugin, a0="")
        await kubelet.start()
        request = await kubelet.next_registration()
        expected = (messages.VERSION, "example.com/card", True)
        assert (request.version, request.resource_name, Path(plugin.socket).name == request.endpoint) == expected
        assert await kubelet.next_list() == {name: "Healthy"}
        assert plugin.is_registered
        await show(plugin, a0="gone")
        assert await kubelet.next_list() == {name: "Unhealthy"}
        await show(plugin, a0="still gone")
        await show(plugin, a0="")
        assert await kubelet.next_list() == {name: "Healthy"}

    play(tmp_path, act)


def test_two_plugins_of_one_resource_do_not_fight(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The one that came later waits, says why, and takes over when the first has gone."""

    async def work() -> None:
        kubelet, plugins_ = Kubelet(tmp_path), [Plugin(CARDS, str(tmp_path), lambda: None) for _ in range(2)]
        await kubelet.start()
        registrars = []
        for plugin in plugins_:
            registrars.append(asyncio.create_task(plugin.keep_registered(PERIOD)))
            while not any(plugin.registrations.values()):
                await asyncio.sleep(0.01)
        assert await kubelet.next_list() == {}
        first, second = plugins_
        while second.registrations["failure"] < 2:
            await asyncio.sleep(0.01)
        assert (first.is_registered, second.is_registered, kubelet.registered.qsize()) == (True, False, 1)
        await leave(first, registrars[0])
        assert [await kubelet.next_list(), await kubelet.next_list()] == [None, {}]
        assert second.registrations["success"] == 1
        await leave(second, registrars[1])
        await kubelet.stop()

    asyncio.run(work())
    assert "another plugin listens on" in caplog.text


def test_without_devices_the_list_is_empty(tmp_path: Path) -> None:
    """After a reboot the plugin may start before the driver."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        await kubelet.start()
        assert await kubelet.next_list() == {}
        (name,) = await show(plugin, a0="")
        assert await kubelet.next_list() == {name: "Healthy"}

    play(tmp_path, act)


def test_a_kubelet_that_restarts_is_registered_with_again(tmp_path: Path) -> None:
    """It deletes the plugin's socket, and gets a new one."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        await kubelet.start()
        await kubelet.next_registration()
        await kubelet.next_list()
        for _ in range(2):
            await kubelet.stop()
            assert not plugin.is_registered
            await kubelet.start()
            await kubelet.next_registration()
            assert await kubelet.next_list() == {}

    play(tmp_path, act)


def test_a_refused_registration_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt is counted; the reason is logged once."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        kubelet.refuses = 2
        await kubelet.start()
        assert await kubelet.next_list() == {}
        assert plugin.registrations["failure"] >= 2
        assert plugin.registrations["success"] == 1

    play(tmp_path, act)
    assert caplog.text.count("the kubelet refused the resource: not today") == 1


def test_a_folder_where_much_happens_hurries_no_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file there that comes or goes is a reason to look; a kubelet that refuses is asked after a pause."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        kubelet.refuses = 100
        await kubelet.start()
        while not plugin.registrations["failure"]:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(plugins, "_FIRST_DELAY", 3600.0)
        seen = 0
        while plugin.registrations["failure"] > seen:
            seen = plugin.registrations["failure"]
            for _ in range(100):
                plugin.nudge()
                await asyncio.sleep(0.001)
        assert seen <= 3

    play(tmp_path, act)


def test_a_kubelet_that_does_not_answer_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registration is tried again, and succeeds once there is an answer."""
    monkeypatch.setattr(plugins, "_CALL_SECONDS", 0.1)

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        kubelet.answers = False
        await kubelet.start()
        while not plugin.registrations["failure"]:
            await asyncio.sleep(0.01)
        kubelet.answers = True
        monkeypatch.setattr(plugins, "_CALL_SECONDS", 10.0)
        assert await kubelet.next_list() == {}

    play(tmp_path, act)


def test_a_list_that_nobody_watches_is_registered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that took the registration and forgot it is reminded."""
    monkeypatch.setattr(plugins, "_WATCHED_SECONDS", 0.1)

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        kubelet.watches = False
        await kubelet.start()
        await kubelet.next_registration()
        await kubelet.next_registration()
        assert not plugin.is_registered
        kubelet.watches = True
        assert await kubelet.next_list() == {}

    play(tmp_path, act)


def test_a_plugin_that_leaves_as_it_is_registered_ends(tmp_path: Path) -> None:
    """It is cancelled when the answer comes, and does not forget that."""

    async def act(kubelet: Kubelet, _plugin: Plugin) -> None:
        kubelet.watches = False
        await kubelet.start()
        await kubelet.next_registration()

    play(tmp_path, act)


def test_a_plugin_that_leaves_empties_the_list_first(tmp_path: Path) -> None:
    """Then the stream ends, and the socket is gone."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        (name,) = await show(plugin, a0="")
        await kubelet.start()
        assert await kubelet.next_list() == {name: "Healthy"}

    async def after(kubelet: Kubelet, plugin: Plugin) -> None:
        assert [await kubelet.next_list(), await kubelet.next_list()] == [{}, None]
        assert not Path(plugin.socket).exists()

    play(tmp_path, act, after)


# Python's own server leaves a connection to the collector that it has accepted as it is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_plugin_leaves_nothing_at_whatever_moment_it_is_told_to(tmp_path: Path) -> None:
    """A socket that nobody knows any more would answer, and keep the resource from being offered again."""

    async def act(kubelet: Kubelet, _plugin: Plugin, steps: int) -> None:
        await kubelet.start()
        for _ in range(steps):
            await asyncio.sleep(0)

    async def after(_kubelet: Kubelet, plugin: Plugin) -> None:
        with pytest.raises(OSError, match=r"No such file|refused"):
            await asyncio.open_unix_connection(plugin.socket)
        assert not Path(plugin.socket).exists()

    for steps in range(40):
        play(tmp_path, partial(act, steps=steps), after)
    # Within this test, which ignores what is said of it.
    gc.collect()


def test_a_server_that_cannot_start_for_a_reason_of_its_own_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no fault of the folder is not hidden: nobody would listen where the kubelet calls."""

    async def start(_server: object, **_where: str) -> None:
        raise RuntimeError("no loop")

    async def work() -> None:
        kubelet, plugin = Kubelet(tmp_path), Plugin(CARDS, str(tmp_path), lambda: None)
        await kubelet.start()
        monkeypatch.setattr(PluginServer, "start", start)
        try:
            async with asyncio.timeout(SECONDS):
                with pytest.raises(RuntimeError, match="no loop"):
                    await plugin.keep_registered(PERIOD)
            assert kubelet.registered.empty()
        finally:
            await kubelet.stop()

    asyncio.run(work())


def test_what_the_kubelet_asks_is_answered(tmp_path: Path) -> None:
    """Options, a preferred allocation, an allocation, and what is not needed before a start."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        name, other = await show(plugin, a0="", a1="it fails")
        await kubelet.start()
        request: RegisterRequest = await kubelet.next_registration()
        options = await kubelet.ask(request, messages.OPTIONS, Empty(), DevicePluginOptions)
        assert options == request.options == DevicePluginOptions(get_preferred_allocation_available=True)
        question = PreferredAllocationRequest(
            containers=(ContainerPreferredAllocationRequest(available=(name, other), must_include=(other,), size=1),)
        )
        preferred = await kubelet.ask(request, messages.PREFERRED_ALLOCATION, question, PreferredAllocationResponse)
        assert [one.device_ids for one in preferred.containers] == [(other,)]
        answer = await kubelet.ask(request, messages.ALLOCATE, _allocate(name), AllocateResponse)
        assert [spec.host_path for spec in answer.containers[0].devices] == ["/dev/a0"]
        assert await kubelet.ask(request, messages.PRE_START_CONTAINER, Empty(), Empty) == Empty()
        with pytest.raises(GRPCError, match="is not healthy: it fails") as refused:
            await kubelet.ask(request, messages.ALLOCATE, _allocate(other), AllocateResponse)
        assert refused.value.status is Status.FAILED_PRECONDITION
        assert plugin.service.allocations == {"success": 1, "refused": 1}

    play(tmp_path, act)


def _allocate(name: str) -> AllocateRequest:
    return AllocateRequest(containers=(ContainerAllocateRequest(device_ids=(name,)),))


def test_what_is_no_socket_gives_way_where_nobody_listens(tmp_path: Path) -> None:
    """Somebody has left a file where the plugin listens; a socket of another plugin stays."""
    path = tmp_path / "plugin.sock"
    path.write_text("x")
    plugins._make_room(str(path))
    assert not path.exists()
    plugins._make_room(str(path))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        plugins._make_room(str(path))
        assert path.is_socket()
