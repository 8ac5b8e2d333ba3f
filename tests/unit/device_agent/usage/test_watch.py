"""Who has which device is followed by the kubelet's word, and the container ``nvml`` hears which pods count."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.config.options import Settings
from device_agent.devices.model import DeviceNode, Unit
from device_agent.gpu_state.use import MOST_PODS
from device_agent.nvml_client.lines import Pauses
from device_agent.usage.attribution import Resources
from device_agent.usage.watch import Timing, UseWatch
from tests.unit.device_agent.host_tree import HostTree, needs_root
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.usage.examples import SHARED, offers

SOON = Timing(period=0.01, pauses=Pauses(silence=SECONDS, first_delay=0.01, longest_delay=0.05))


def watch(
    folder: Path,
    act: Callable[[UseWatch, Pods, Nvml], Awaitable[None]],
    resources: Resources | None = None,
    fail: Callable[[], None] = lambda: None,
) -> None:
    """Follow a kubelet and a container that are there, and act. ``fail``: may raise at each look."""
    offered = resources if resources is not None else {SHARED: offers(Unit(id="GPU-0", shares=4))}

    def offers_now() -> Resources:
        fail()
        return offered

    async def work() -> None:
        pods, nvml = Pods(folder), Nvml(folder)
        await pods.start()
        await nvml.start()
        settings = Settings(root=str(folder), pod_resources=pods.path, nvml_socket=nvml.path)
        made = UseWatch(settings, offers_now, SOON)
        try:
            async with asyncio.timeout(SECONDS):
                await act(made, pods, nvml)
                made.check()
        finally:
            await made.close()
            await pods.stop()
            await nvml.stop()

    asyncio.run(work())


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something."""
    while not is_so():
        await asyncio.sleep(0.01)


def devices(made: UseWatch) -> list[str] | None:
    """Name the devices that containers have."""
    return None if made.held is None else [one.device for one in made.held]


def test_pods_that_come_and_go_are_followed(tmp_path: Path) -> None:
    """Those that have a device of the agent's alone; sorted, and only where processes are asked for."""

    async def act(made: UseWatch, pods: Pods, nvml: Nvml) -> None:
        assert await nvml.pods.get() is None
        pods.run(SHARED, "GPU-0::1", "GPU-0::0")
        pods.run("example.com/nic", "eth1")
        await until(lambda: devices(made) == ["GPU-0::0", "GPU-0::1"])
        assert nvml.pods.empty()
        made.ask_processes(True)
        assert await nvml.pods.get() == ("default/p0", "default/p1")
        pods.end(SHARED, "GPU-0::1")
        assert await nvml.pods.get() == ("default/p1",)
        made.ask_processes(False)
        assert await nvml.pods.get() is None

    watch(tmp_path, act)


def test_a_resource_that_is_no_longer_offered_is_followed_while_a_pod_has_it(tmp_path: Path) -> None:
    """As after a change of profile; also by a kubelet that was away meanwhile."""
    offered = {SHARED: offers(Unit(id="GPU-0", shares=4))}

    async def act(made: UseWatch, pods: Pods, _nvml: Nvml) -> None:
        made.ask_processes(True)
        pods.run(SHARED, "GPU-0::1")
        await until(lambda: devices(made) == ["GPU-0::1"])
        del offered[SHARED]
        await pods.stop()
        await until(lambda: made.held is None)
        await pods.start()
        await until(lambda: made.held is not None)
        asked = pods.asked
        await until(lambda: pods.asked > asked + 2)
        assert devices(made) == ["GPU-0::1"]
        pods.end(SHARED, "GPU-0::1")
        await until(lambda: devices(made) == [])
        pods.run(SHARED, "GPU-0::1")
        asked = pods.asked
        await until(lambda: pods.asked > asked + 2)
        assert devices(made) == []

    watch(tmp_path, act, offered)


def test_a_kubelet_that_is_away_leaves_nothing_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and again when it is back; the same pods are asked for meanwhile."""

    async def act(made: UseWatch, pods: Pods, nvml: Nvml) -> None:
        made.ask_processes(True)
        pods.run(SHARED, "GPU-0::1")
        await until(lambda: devices(made) == ["GPU-0::1"])
        await pods.stop()
        await until(lambda: made.held is None)
        assert "cannot be asked" in made.why
        await pods.start()
        await until(lambda: devices(made) == ["GPU-0::1"])
        assert made.why == ""
        asked = [nvml.pods.get_nowait() for _ in range(nvml.pods.qsize())]
        assert asked[-1] == ("default/p0",)
        assert len(asked) == len(set(asked))

    with caplog.at_level(logging.INFO):
        watch(tmp_path, act)
    assert caplog.text.count("it is not known which pod has which device: ") == 1
    assert "the kubelet says which pod has which device" in caplog.text


def test_a_look_that_fails_leaves_nothing_known_and_the_next_one_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it was, as where no thread can be started: processes would be ended by what was known before."""
    failing: list[str] = []
    seen: list[float] = []

    def fail() -> None:
        if failing:
            seen.append(seconds_since_boot())
            raise RuntimeError(failing[0])

    async def act(made: UseWatch, pods: Pods, _nvml: Nvml) -> None:
        pods.run(SHARED, "GPU-0::1")
        await until(lambda: devices(made) == ["GPU-0::1"])
        failing.append("can't start new thread")
        await until(lambda: len(seen) > 2)
        assert made.held is None
        assert "can't start new thread" in made.why
        failing.clear()
        await until(lambda: devices(made) == ["GPU-0::1"])
        assert made.why == ""

    with caplog.at_level(logging.INFO):
        watch(tmp_path, act, fail=fail)
    assert caplog.text.count("it could not be found out: RuntimeError") == 1
    assert "Traceback" in caplog.text
    assert "the kubelet says which pod has which device" in caplog.text


def test_holders_are_as_old_as_the_question(tmp_path: Path) -> None:
    """The kubelet may take its time to answer: a pod may have gone meanwhile."""

    async def act(made: UseWatch, pods: Pods, _nvml: Nvml) -> None:
        pods.run(SHARED, "GPU-0::1")
        await until(lambda: devices(made) == ["GPU-0::1"])
        answer = pods.answer = asyncio.Event()
        asked = pods.asked
        await until(lambda: pods.asked > asked)
        before, heard = seconds_since_boot(), made.held_at
        pods.run(SHARED, "GPU-0::2")
        await asyncio.sleep(0.05)
        assert made.held_at == heard
        answer.set()
        await until(lambda: made.held_at > heard)
        assert made.held_at <= before

    watch(tmp_path, act)


def test_more_pods_than_can_be_asked_for_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others have their devices, and no use of their own."""
    ids = [f"GPU-0::{number}" for number in range(MOST_PODS + 1)]

    async def act(made: UseWatch, pods: Pods, nvml: Nvml) -> None:
        pods.run(SHARED, *ids)
        made.ask_processes(True)
        while len(await nvml.pods.get() or ()) < MOST_PODS:
            pass
        await until(lambda: len(made.held or ()) == len(ids))

    watch(tmp_path, act, {SHARED: offers(Unit(id="GPU-0", shares=2 * MOST_PODS))})
    assert caplog.text.count(f"{MOST_PODS + 1} pods have devices") == 1


@needs_root
def test_files_are_of_the_card_whose_device_nodes_they_are(tmp_path: Path) -> None:
    """By its address on the bus."""
    host = HostTree(tmp_path)
    host.node("/dev/dri/renderD128", 226, 128)
    host.sysfs("226:128", "pci0000:00/0000:03:00.0")
    unit = Unit(id="dri-renderD128-1f0c2a9b", files=(DeviceNode(path="/dev/dri/renderD128", mount_path="/x"),))

    async def act(made: UseWatch, pods: Pods, _nvml: Nvml) -> None:
        pods.run("example.com/gpu", unit.id)
        await until(lambda: bool(made.held))
        assert made.held is not None
        assert set(made.held[0].pci) == {"0000:03:00.0"}

    watch(tmp_path, act, {"example.com/gpu": offers(unit)})
