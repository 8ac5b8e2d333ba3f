"""A whole agent with profiles, between a kubelet that says who has what and a container ``nvml``."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grpclib.exceptions import GRPCError

from device_agent.config.options import Settings
from device_agent.protocol import messages
from device_agent.protocol.messages import AllocateRequest, AllocateResponse, ContainerAllocateRequest
from tests.unit.device_agent.nvidia.life import Life, play, settings_of
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import card, state, xid

if TYPE_CHECKING:
    from device_agent.gpus import MakeOwnNode

GPU, SHARED, L4 = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/l4"
CARDS = tuple(f"GPU-{number}" for number in range(4))
WHOLE = "version: v1\n"
SHARES = """\
version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
RENAMED = SHARES.replace("timeSlicing:", "timeSlicing:\n    renameByDefault: true", 1)
SOME = """\
version: v1
flags: {plugin: {passDeviceSpecs: true, sharedDevicesAllocationPolicy: packed}}
resources:
  gpus:
  - {pattern: "NVIDIA L4*", name: nvidia.com/l4}
  - {pattern: "*", name: nvidia.com/gpu}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: ["0", 1]}]
"""
BROKEN = SHARES.replace("replicas", "replica")


class Node:
    """A node whose agent follows a profile. ``life`` and ``pods``: what it is between."""

    def __init__(self, life: Life, pods: Pods) -> None:
        self.life = life
        self.pods = pods
        self.nvml = life.nvml
        self.kubelet = life.kubelet

    async def shows(self, **counts: tuple[int, int]) -> None:
        """Wait until the kubelet has these lists: healthy and all devices."""
        names = {"gpu": GPU, "shared": SHARED, "l4": L4}
        await self.kubelet.until_shown({names[name]: count for name, count in counts.items()})

    async def start_pods(self, resource: str, *ids: str) -> None:
        """Give each of these devices to a pod of its own."""
        for name in ids:
            await self.allocate(resource, name)
        self.pods.run(resource, *ids)

    async def knows_pods(self) -> None:
        """Wait until the agent has taken in an answer that shows the pods: what none shows counts for a minute."""
        asked = self.pods.asked
        while self.pods.asked < asked + 2:
            await asyncio.sleep(0.01)

    async def allocate(self, resource: str, *ids: str) -> AllocateResponse:
        """Ask for devices for one container."""
        request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=ids),))
        plugin = self.kubelet.plugins[resource]
        answer = await self.kubelet.ask(plugin, messages.ALLOCATE, request, AllocateResponse)
        assert isinstance(answer, AllocateResponse)
        return answer

    def write(self, text: str = "", **others: str) -> None:
        """Change the profiles, as a mounted ConfigMap changes."""
        mount(self.life.folder / "profiles", text, **others)

    async def metric(self, line: str) -> None:
        """Wait until the agent counts this."""
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        while True:
            reader, writer = await asyncio.open_unix_connection(shared(self.life.folder).socket)
            writer.write(request)
            page = (await reader.read()).decode()
            writer.close()
            if line in page.splitlines():
                return
            await asyncio.sleep(0.01)


def mount(folder: Path, text: str = "", **others: str) -> None:
    """Have a ConfigMap mounted: the link ``..data`` is put in the place of the one before.

    ``text``: of the key ``default``; empty: there is none. ``others``: further keys.
    """
    version = folder / f"..{len(list(folder.glob('..*'))) if folder.exists() else 0}"
    version.mkdir(parents=True)
    for key, content in {**({"default": text} if text else {}), **others}.items():
        (version / key).write_text(content)
        if not (folder / key).is_symlink():
            (folder / key).symlink_to(f"..data/{key}")
    (folder / "..tmp").symlink_to(version.name)
    os.replace(folder / "..tmp", folder / "..data")  # noqa: PTH105 - as the kubelet does


def shared(folder: Path) -> Settings:
    """Return the settings of an agent with profiles."""
    return settings_of(folder)._replace(
        profiles=str(folder / "profiles"), pod_resources=str(folder / "pods.sock"), socket=str(folder / "pages.sock")
    )


def live(
    folder: Path,
    act: Callable[[Node], Awaitable[None]],
    profile: str = "",
    *,
    is_asked: bool = True,
    own_node: "MakeOwnNode" = lambda *_: None,
) -> None:
    """Run an agent with this profile, act, and end it; with the profile that is there if none is given."""
    pods = Pods(folder)
    if profile:
        mount(folder / "profiles", profile)

    async def work(life: Life) -> None:
        if is_asked:
            await pods.start()
        try:
            await life.nvml.start(state())
            await act(Node(life, pods))
        finally:
            await pods.stop()

    play(folder, work, settings=shared(folder), own_node=own_node)


def test_shares_are_offered_one_for_each_container(folder: Path) -> None:
    """``slice-4``: 16 of them; a container that asks for two is refused, with NVIDIA's words."""

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        await node.allocate(SHARED, "GPU-0::0")
        with pytest.raises(GRPCError, match=r"request for 'nvidia\.com/gpu\.shared: 2' too large: maximum request"):
            await node.allocate(SHARED, "GPU-0::1", "GPU-1::0")

    live(folder, act, RENAMED)


def test_some_gpus_are_shared_and_some_have_other_names(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """``some-shared``: two of four are; what its author wrote in vain is logged once."""

    async def act(node: Node) -> None:
        cards = (*map(card, range(3)), card(3, name="NVIDIA L4"))
        node.nvml.show(state(*cards))
        await node.shows(gpu=(1, 1), shared=(8, 8), l4=(1, 1))
        node.nvml.show(state(*cards, at=110.0, xids=(xid(1, 79, of=0),)))
        await node.shows(gpu=(1, 1), shared=(4, 8), l4=(1, 1))
        assert caplog.text.count("is ignored: flags.plugin.passDeviceSpecs") == 1

    live(folder, act, SOME)


def test_a_held_gpu_is_shared_when_its_pod_has_ended(folder: Path) -> None:
    """Under another name: the others are shared at once; its own name stays registered until then."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        await node.start_pods(GPU, "GPU-0")
        node.write(RENAMED)
        await node.shows(gpu=(1, 1), shared=(12, 16))
        with pytest.raises(GRPCError, match=r"GPU-0 is still held as nvidia\.com/gpu \(1 device\)"):
            await node.allocate(SHARED, "GPU-0::0")
        await node.knows_pods()
        node.pods.end(GPU, "GPU-0")
        await node.shows(shared=(16, 16))

    live(folder, act, WHOLE)


def test_what_waits_for_a_change_is_not_unhealthy(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No warning is logged and no change of health counted; the metrics say what waits, until nothing does."""
    caplog.set_level("INFO")
    of = 'device_agent_devices{resource="nvidia.com/gpu.shared",health='

    async def act(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        await node.metric("device_agent_profile_waiting 0")
        await node.start_pods(GPU, "GPU-0")
        node.write(RENAMED)
        await node.shows(gpu=(1, 1), shared=(12, 16))
        for line in (f'{of}"healthy"}} 12', f'{of}"unhealthy"}} 0', f'{of}"waiting"}} 4'):
            await node.metric(line)
        await node.metric("device_agent_profile_waiting 1")
        await node.metric('device_agent_health_changes_total{resource="nvidia.com/gpu.shared"} 0')
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=0),)))
        await node.metric(f'{of}"unhealthy"}} 4')
        await node.metric('device_agent_health_changes_total{resource="nvidia.com/gpu.shared"} 1')
        await node.metric("device_agent_profile_current 1")

    live(folder, act, WHOLE)
    assert "GPU-0 is not given yet: GPU-0 is still held as nvidia.com/gpu (1 device)" in caplog.text
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line for line in warnings if "is not healthy" in line and "Xid 79" not in line] == []


def test_a_held_gpu_is_shared_under_its_own_name(folder: Path) -> None:
    """Twelve shares and the GPU that is held; an Xid of it makes all of it unhealthy."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        await node.start_pods(GPU, "GPU-0")
        node.write(SHARES)
        await node.shows(gpu=(13, 17))
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=0),)))
        await node.shows(gpu=(12, 17))

    live(folder, act, WHOLE)


def test_held_shares_keep_their_gpus(folder: Path) -> None:
    """Back to whole GPUs with a pod on each: the pods' shares stay, and no GPU is whole; three when three ended."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(16, 16))
        await node.start_pods(GPU, *(f"{name}::1" for name in CARDS))
        node.write(WHOLE)
        await node.shows(gpu=(4, 8))
        await node.knows_pods()
        node.pods.end(GPU, *(f"{name}::1" for name in CARDS[1:]))
        await node.shows(gpu=(4, 5))
        free = dict.fromkeys(CARDS[1:], "Healthy")
        assert node.kubelet.shown[GPU] == {"GPU-0::1": "Healthy", "GPU-0": "Unhealthy", **free}

    live(folder, act, SHARES)


def test_a_gpu_with_four_held_shares_is_not_whole(folder: Path) -> None:
    """Three are, and the four shares stay with their pods."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(16, 16))
        await node.start_pods(GPU, *(f"GPU-0::{number}" for number in range(4)))
        node.write(WHOLE)
        await node.shows(gpu=(7, 8))

    live(folder, act, SHARES)


def test_an_xid_takes_all_shares_of_a_gpu(folder: Path) -> None:
    """Those of the other GPUs stay healthy."""

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
        await node.shows(shared=(12, 16))

    live(folder, act, RENAMED)


def test_a_broken_profile_keeps_the_last_good_one(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; the next good one counts."""

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        node.write(BROKEN)
        while "there is no such field; did you mean replicas?; default stays in force" not in caplog.text:
            await asyncio.sleep(0.01)
        await node.metric("device_agent_profile_current 0")
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
        await node.shows(shared=(12, 16))
        assert caplog.text.count("did you mean replicas?") == 1
        node.write(WHOLE)
        await node.shows(gpu=(3, 4))

    live(folder, act, RENAMED)


def test_without_any_good_profile_gpus_are_whole(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the configuration says."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        assert "GPUs are offered without a profile" in caplog.text
        node.write(RENAMED)
        await node.shows(shared=(16, 16))

    live(folder, act, BROKEN)


def test_at_rest_nobody_is_asked_who_has_devices(folder: Path) -> None:
    """Once at the start, and until a change has come to its end."""

    async def act(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        node.write(RENAMED)
        await node.shows(shared=(16, 16))
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
        await node.shows(shared=(12, 16))
        asked = node.pods.asked
        xids = tuple(xid(number, 79, of=of) for number, of in enumerate((2, 0, 1, 3), 1))
        for number in (2, 3, 4):
            node.nvml.show(state(at=110.0 + number, xids=xids[:number]))
            await node.shows(shared=(16 - 4 * number, 16))
        assert node.pods.asked <= asked + 1, "the last look of the change may have come after that list"

    live(folder, act, WHOLE)


def test_an_agent_that_starts_takes_nothing_from_pods(folder: Path) -> None:
    """The profile has changed while it was away: what pods have is listed as it was given, also with SIGKILL."""

    async def before(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        await node.start_pods(GPU, "GPU-0")

    async def after(node: Node) -> None:
        node.pods.run(GPU, "GPU-0")
        await node.shows(gpu=(1, 1), shared=(12, 16))
        await node.knows_pods()
        node.pods.end(GPU, "GPU-0")
        await node.shows(shared=(16, 16))

    live(folder, before, WHOLE)
    given = json.loads((folder / "state/allocations.json").read_text())["given"]
    assert [(one["id"], one["shares"]) for one in given] == [("GPU-0", 1)]
    live(folder, after, RENAMED)


def test_a_change_waits_while_nobody_says_who_has_devices(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is given of GPUs that were never given; one that was given stays as it was."""

    async def before(node: Node) -> None:
        await node.shows(gpu=(4, 4))
        await node.allocate(GPU, "GPU-0")

    async def after(node: Node) -> None:
        await node.shows(gpu=(1, 1), shared=(0, 12))
        await node.metric("device_agent_profile_waiting 4")
        assert "it is not known which devices are in use: the kubelet cannot be asked on" in caplog.text

        await node.pods.start()
        node.pods.run(GPU, "GPU-0")
        await node.shows(gpu=(1, 1), shared=(12, 16))

    live(folder, before, WHOLE)
    live(folder, after, RENAMED, is_asked=False)


def test_the_checkpoint_alone_missing_gives_nothing(folder: Path) -> None:
    """One of the two that say who has devices is not enough: what the kubelet shows has GPU-0 whole."""
    checkpoint = folder / "plugins/kubelet_internal_checkpoint"

    async def act(node: Node) -> None:
        await node.shows(shared=(0, 16))
        node.pods.run(GPU, "GPU-0")
        await node.shows(gpu=(1, 1), shared=(12, 16))

    async def work(life: Life) -> None:
        pods = Pods(folder)
        pods.run(GPU, "GPU-0")
        checkpoint.unlink()
        await pods.start()
        await life.nvml.start(state())
        await act(Node(life, pods))
        await pods.stop()

    mount(folder / "profiles", RENAMED)
    play(folder, work, settings=shared(folder))


def test_gpus_that_come_after_the_first_look_are_looked_at(folder: Path) -> None:
    """The driver is late: another plugin's pod has a GPU by then."""

    async def work(life: Life) -> None:
        pods = Pods(folder)
        pods.run(GPU, "GPU-0")
        await pods.start()
        await life.nvml.start(state()._replace(cards=()))
        node = Node(life, pods)
        while GPU not in node.kubelet.plugins:
            await asyncio.sleep(0.01)
        life.nvml.show(state(at=110.0))
        await node.shows(gpu=(1, 1), shared=(12, 16))
        await pods.stop()

    mount(folder / "profiles", RENAMED)
    play(folder, work, settings=shared(folder))


def test_another_plugin_may_have_given_gpus_before_it_went(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It gave one whole: no list after it has a share of that GPU to give."""
    socket = folder / "plugins/nvidia-gpu.sock"

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        theirs = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), socket)
        while "not offered: another plugin answers" not in caplog.text:
            await asyncio.sleep(0.01)
        node.pods.run(GPU, "GPU-0")
        while not node.kubelet.lists.empty():
            node.kubelet.lists.get_nowait()
        theirs.close()
        socket.unlink()
        await node.shows(gpu=(1, 1), shared=(12, 16))
        lists = [node.kubelet.lists.get_nowait() for _ in range(node.kubelet.lists.qsize())]
        assert not [one for one in lists if one and one.get("GPU-0::0") == "Healthy"]

    live(folder, act, RENAMED)


def test_profiles_without_gpus_in_the_configuration_are_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They would mean nothing, and nobody would know; they count when the configuration asks for GPUs."""

    async def act(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state())
        while "--profiles means nothing without nvidia: in" not in caplog.text:
            await asyncio.sleep(0.01)
        life.config.write_text("nvidia: {}\n")
        os.kill(os.getpid(), signal.SIGHUP)
        await life.kubelet.until_shown({SHARED: (16, 16)})
        await pods.stop()

    pods = Pods(folder)
    mount(folder / "profiles", RENAMED)
    play(folder, act, "resources: []\n", shared(folder))
