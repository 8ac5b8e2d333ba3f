"""Sources beside each other: their resources come and go, and one that does not answer holds up no other."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from device_agent.agent import Agent
from device_agent.allocations.remembered import Allocations
from device_agent.config.config_file import Description, parse_description
from device_agent.config.options import Settings
from device_agent.devices.model import PLAIN, BindMount, DeviceNode, Policy, Traits, Unit
from device_agent.followed import Followed
from device_agent.kubelet.plugin import endpoint
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    DeviceSpec,
    Mount,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from device_agent.sources.files import files_source
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.source import Known, Source
from file_watch.inotify import Place
from testbed.ports import free_ports
from tests.unit.device_agent.host_tree import HostTree
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet
from tests.unit.device_agent.test_agent import Life

GPU, CARD = "example.com/gpu", "example.com/card"
NEVER = 300.0
"""An interval that no test waits for: what is seen was woken up for."""
CONFIG = f"resources:\n- name: {CARD}\n  groups:\n  - paths: [{{path: /run/card*, type: Mount}}]\n"


class FakeSource:
    """Gives what a test sets. While ``answers`` is not set, it is looked at without an end."""

    def __init__(self, name: str = "fake", **units: Sequence[Unit]) -> None:
        self.name = name
        self.now: dict[str, Sequence[Unit]] = {f"example.com/{resource}": given for resource, given in units.items()}
        self.resources: Known = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_closed = False
        self.decides = PLAIN
        self.missing = ""

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake."""
        self.wake = wake

    def configure(self, description: Description) -> None:
        """Take no configuration."""

    def places(self) -> Sequence[Place]:
        """Watch nothing."""
        return ()

    async def look(self) -> None:
        """See what there is now."""
        await self.answers.wait()
        self.resources = dict(self.now)

    def traits(self, resource: str) -> Traits:
        """Say what a test has set."""
        assert resource in self.resources
        return self.decides

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Remember them."""
        self.known_to_kubelet, self.taken = resources, taken

    def commands(self, resource: str) -> Mapping[str, int]:
        """Run no command."""
        assert resource in self.resources
        return {}

    async def close(self) -> None:
        """Remember it."""
        self.is_closed = True

    def show(self, resource: str, *units: Unit) -> None:
        """Have a resource with these units."""
        self.now[resource] = units
        self.wake()

    def take_away(self, resource: str) -> None:
        """Have a resource no more."""
        del self.now[resource]
        self.wake()


def play(
    folder: Path,
    act: Callable[[Life], Awaitable[None]],
    sources: Callable[[str], Sequence[Source]],
    given: Allocations | None = None,
) -> None:
    """Run an agent with sources, act, and end it as the kubelet does."""
    host, plugins, file = HostTree(folder / "host"), folder / "plugins", folder / "config.yaml"
    (host.root / "run").mkdir(parents=True)
    plugins.mkdir()
    file.write_text(CONFIG)
    (port,) = free_ports(1)
    settings = Settings(config_file=str(file), root=host.path, plugin_dir=str(plugins), port=port, interval=NEVER)
    load = partial(parse_description, CONFIG, str(file))

    async def work() -> None:
        kubelet = Kubelet(plugins)
        running = asyncio.create_task(Agent(settings, load(), load, sources(host.path), given).run())
        try:
            await kubelet.start()
            async with asyncio.timeout(5 * SECONDS):
                await act(Life(host, kubelet, file, port))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                await running
            await kubelet.stop()

    asyncio.run(work())
    assert not list(plugins.glob("driverwright-*"))


def gpu(number: int, **fields: object) -> Unit:
    """Make a unit as a vendor's source does."""
    return Unit(id=f"GPU-{number}", **fields)  # type: ignore[arg-type]


def test_a_resource_comes_and_goes_while_the_agent_runs(tmp_path: Path) -> None:
    """It is registered when it is there; its list is emptied, and its socket is gone, when it is not; and again."""

    async def act(life: Life) -> None:
        while await life.page("/readyz") != "ok\n":
            pass
        for _ in range(2):
            fake.show(GPU, gpu(0), gpu(1, why="it is lost"))
            assert (await life.kubelet.next_registration()).resource_name == GPU
            assert await life.kubelet.next_list() == {"GPU-0": "Healthy", "GPU-1": "Unhealthy"}
            assert f'device_agent_devices{{resource="{GPU}",health="healthy"}} 1' in await life.page("/metrics")
            fake.take_away(GPU)
            assert [await life.kubelet.next_list(), await life.kubelet.next_list()] == [{}, None]
            while (tmp_path / "plugins" / endpoint(GPU)).exists():
                await asyncio.sleep(0.01)
            assert GPU not in await life.page("/metrics")
        assert await life.page("/readyz") == "ok\n"

    fake = FakeSource()
    play(tmp_path, act, lambda _: [fake])
    assert fake.is_closed


def test_what_a_unit_brings_comes_into_the_container(tmp_path: Path) -> None:
    """Nodes and mounts once for all shares and units; a variable in which units differ has all values."""

    def unit(number: int) -> Unit:
        return gpu(
            number,
            shares=2,
            links={f"GPU-{(number + 2) % 4}": 4},
            files=(
                DeviceNode(path=f"/dev/gpu{number}", mount_path=f"/dev/gpu{number}"),
                DeviceNode(path="/dev/gpuctl", mount_path="/dev/gpuctl", permissions="rw"),
                BindMount(path="/run/gpu/lib", mount_path="/usr/local/gpu/lib64"),
            ),
            environment={"GPUS": f"GPU-{number}", "IDS": "$(DEVICE_IDS)"},
        )

    async def act(life: Life) -> None:
        registered = await life.kubelet.next_registration()
        ids = tuple(await life.kubelet.next_list() or {})
        assert ids == tuple(f"GPU-{number}::{share}" for number in range(4) for share in range(2))
        question = PreferredAllocationRequest(
            containers=(ContainerPreferredAllocationRequest(available=ids, must_include=("GPU-1::1",), size=2),)
        )
        preferred = await life.kubelet.ask(
            registered, messages.PREFERRED_ALLOCATION, question, PreferredAllocationResponse
        )
        assert [one.device_ids for one in preferred.containers] == [("GPU-1::1", "GPU-3::0")]
        chosen = ("GPU-1::1", "GPU-3::0", "GPU-3::1")
        request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=chosen),))
        answer = await life.kubelet.ask(registered, messages.ALLOCATE, request, AllocateResponse)
        assert answer.containers == (
            ContainerAllocateResponse(
                envs={"GPUS": "GPU-1,GPU-3", "IDS": "GPU-1::1,GPU-3::0,GPU-3::1"},
                mounts=(Mount(container_path="/usr/local/gpu/lib64", host_path="/run/gpu/lib", read_only=True),),
                devices=tuple(
                    DeviceSpec(container_path=path, host_path=path, permissions=permissions)
                    for path, permissions in (("/dev/gpu1", "mrw"), ("/dev/gpuctl", "rw"), ("/dev/gpu3", "mrw"))
                ),
            ),
        )

    play(tmp_path, act, lambda _: [FakeSource(gpu=[unit(number) for number in range(4)])])


def test_a_source_that_does_not_answer_holds_up_no_other(tmp_path: Path) -> None:
    """Not at the start and not later: the other's devices follow; the agent is up, and says who is late."""

    async def act(life: Life) -> None:
        assert (await life.kubelet.next_registration()).resource_name == CARD
        assert await life.kubelet.next_list() == {}
        assert await life.page("/readyz") == "not looked at: fake\n"
        life.host.file("/run/card0")
        assert list((await life.kubelet.next_list() or {}).values()) == ["Healthy"]
        fake.answers.set()
        assert (await life.kubelet.next_registration()).resource_name == GPU
        assert await life.kubelet.next_list() == {"GPU-0": "Healthy"}
        fake.missing = "cannot read a file"
        assert await life.page("/readyz") == "cannot read a file\n"
        fake.missing = ""
        assert await life.page("/readyz") == "ok\n"
        fake.answers.clear()
        fake.show(GPU)
        life.host.remove("/run/card0")
        assert list((await life.kubelet.next_list() or {}).values()) == ["Unhealthy"]
        assert await life.page("/healthz") == "ok\n"

    fake = FakeSource(gpu=[gpu(0)])
    fake.answers.clear()
    play(tmp_path, act, lambda root: [fake, FilesSource(root)])
    assert fake.is_closed


def test_a_file_that_is_read_without_an_end_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may wait for a device for ever: the other source's devices follow, and the agent ends when told."""
    is_over = threading.Event()
    monkeypatch.setattr(files_source, "found", lambda *_: is_over.wait(SECONDS))

    async def act(life: Life) -> None:
        assert await life.kubelet.next_list() == {"GPU-0": "Healthy"}
        fake.show(GPU)
        assert await life.kubelet.next_list() == {}
        assert await life.page("/readyz") == f"not registered: {CARD}\n"

    fake = FakeSource(gpu=[gpu(0)])
    play(tmp_path, act, lambda root: [FilesSource(root), fake])
    is_over.set()


def test_a_restart_helps_only_where_no_source_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is late beside another one makes the agent not ready; all of them, not healthy."""
    late = {"second"}
    monkeypatch.setattr(Followed, "seconds_since_look", lambda one: 1e9 if one.source.name in late else 0.0)

    async def act(life: Life) -> None:
        while await life.page("/readyz") != "not looked at: second\n":
            pass
        assert await life.page("/healthz") == "ok\n"
        late.add("first")
        assert await life.page("/healthz") == "the devices were not looked at for too long\n"

    play(tmp_path, act, lambda _: [FakeSource("first"), FakeSource("second")])


def test_two_sources_do_not_offer_one_resource(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The one that had it first offers it; the other one takes over when it has it no more."""

    async def act(life: Life) -> None:
        assert await life.kubelet.next_list() == {"GPU-0": "Healthy"}
        second.show(GPU, gpu(1))
        while "not offered for second: it is offered for first already" not in caplog.text:
            await asyncio.sleep(0.01)
        first.take_away(GPU)
        assert [await life.kubelet.next_list(), await life.kubelet.next_list()] == [{}, None]
        while await life.kubelet.next_list() != {"GPU-1": "Healthy"}:
            pass

    first, second = FakeSource("first", gpu=[gpu(0)]), FakeSource("second")
    play(tmp_path, act, lambda _: [first, second])
    assert caplog.text.count("not offered for second") == 1


def test_what_a_source_decides_of_a_resource_is_so(tmp_path: Path) -> None:
    """Its devices are checked before each start, and shares are of the unit that is used most."""

    async def act(life: Life) -> None:
        registered = await life.kubelet.next_registration()
        assert registered.options == DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )
        await life.kubelet.next_list()
        request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=("GPU-1::0",)),))
        await life.kubelet.ask(registered, messages.ALLOCATE, request, AllocateResponse)
        Allocations(str(tmp_path)).check(GPU, [("GPU-1::0", ("x1",))])
        free = ("GPU-0::0", "GPU-0::1", "GPU-1::1")
        question = PreferredAllocationRequest(containers=(ContainerPreferredAllocationRequest(available=free, size=1),))

        async def preferred() -> list[tuple[str, ...]]:
            answer = await life.kubelet.ask(
                registered, messages.PREFERRED_ALLOCATION, question, PreferredAllocationResponse
            )
            return [one.device_ids for one in answer.containers]

        assert await preferred() == [("GPU-1::1",)]
        fake.decides = Traits(is_checked=True)
        fake.show(GPU, *units, gpu(2, identity=("x2",), why="new"))
        await life.kubelet.next_list()
        assert await preferred() == [("GPU-0::0",)]

    units = [gpu(number, shares=2, identity=(f"x{number}",)) for number in range(2)]
    fake = FakeSource(gpu=units)
    fake.decides = Traits(policy=Policy.PACKED, is_checked=True)
    play(tmp_path, act, lambda _: [fake], Allocations(str(tmp_path)))


def test_a_resource_that_another_plugin_has_is_not_ready_and_says_who(tmp_path: Path) -> None:
    """The other resources are offered; this one is, when the other plugin has ended."""

    async def act(life: Life) -> None:
        assert (await life.kubelet.next_registration()).resource_name == GPU
        path = str(tmp_path / "plugins" / "nvidia-gpu.sock")
        async with await asyncio.start_unix_server(lambda _, writer: writer.close(), path):
            fake.show("nvidia.com/gpu", gpu(0))
            expected = f"not registered: nvidia.com/gpu (another plugin answers on {path})\n"
            while await life.page("/readyz") != expected:
                pass
            assert 'device_agent_registered{resource="nvidia.com/gpu"} 0' in await life.page("/metrics")
        os.unlink(path)  # noqa: PTH108 - as the plugin does it, within the loop
        assert (await life.kubelet.next_registration()).resource_name == "nvidia.com/gpu"
        while await life.page("/readyz") != "ok\n":
            pass

    fake = FakeSource(gpu=[gpu(1)])
    play(tmp_path, act, lambda _: [fake])
