"""A whole agent with ``nvidia:``, between a kubelet and a container ``nvml``."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from device_agent.cli.main import run
from device_agent.gpu_state.requests import FOLLOW, MAKE_NODES
from device_agent.gpu_state.state import NodeState, XidEvent
from device_agent.gpu_state.state_json import dump_state
from device_agent.protocol import messages
from device_agent.protocol.messages import AllocateRequest, AllocateResponse, ContainerAllocateRequest, DeviceSpec
from tests.unit.device_agent.nvidia.life import Life, play
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.states import card, lost, nodes, split, state, xid

GPU = "nvidia.com/gpu"
WELL = {f"GPU-{number}": "Healthy" for number in range(4)}
WITHOUT_0 = {**WELL, "GPU-0": "Unhealthy"}
WITHOUT_ANY = dict.fromkeys(WELL, "Unhealthy")


async def read_again_and_again(nvml: Nvml, xids: tuple[XidEvent, ...]) -> None:
    """Say that all is well, every time ten seconds later."""
    for at in range(110, 100_000, 10):
        nvml.show(state(at=float(at), xids=xids))
        await asyncio.sleep(0.02)


def test_the_health_of_gpus_is_the_kubelets(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Four are offered; an Xid takes one until it has answered; one of a program takes none; the container ends."""

    async def act(life: Life) -> None:
        nvml, xids = life.nvml, (xid(1, 31, of=1), xid(2, 79, of=0, at=102.0))
        await nvml.start(state())
        registered = await life.kubelet.next_registration()
        assert registered.resource_name == GPU
        assert registered.options is not None
        assert registered.options.pre_start_required
        await life.list_of(WELL)
        nvml.show(state(xids=xids[:1]))
        nvml.show(state(xids=xids))
        assert await life.kubelet.next_list() == WITHOUT_0
        reading = asyncio.create_task(read_again_and_again(nvml, xids))
        await life.list_of(WELL)
        reading.cancel()
        await nvml.stop()
        assert await life.kubelet.next_list() == WITHOUT_ANY
        await nvml.start(state(at=1e6, session="s2"))
        assert await life.kubelet.next_list() == WELL
        assert "GPU-0 is not healthy: Xid 79" in caplog.text
        assert "GPU-0 is not healthy: the container nvml does not answer" in caplog.text

    play(folder, act)


def test_a_gpu_comes_into_the_container(folder: Path) -> None:
    """Its nodes and its UUID; one that is lost is refused."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(card(0), card(1), lost(2, uuid="GPU-2"), card(3)))
        registered = await life.kubelet.next_registration()
        await life.list_of({**WELL, "GPU-2": "Unhealthy"})
        request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=("GPU-1", "GPU-3")),))
        answer = await life.kubelet.ask(registered, messages.ALLOCATE, request, AllocateResponse)
        (container,) = answer.containers
        assert container.envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-3"}
        assert container.devices == tuple(
            DeviceSpec(container_path=path, host_path=path, permissions="rw")
            for path in ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                         "/dev/nvidia-modeset", "/dev/nvidia3")
        )  # fmt: skip
        assert (life.folder / "state/allocations.json").exists()

    play(folder, act)


def test_at_a_boot_it_registers_and_then_has_nodes_made(folder: Path) -> None:
    """Without a device node NVML finds nothing: the list is empty, and is not when they are made."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(status="absent", reason="there are no device nodes"))
        await life.kubelet.next_registration()
        assert await life.kubelet.next_list() == {}
        assert [await life.nvml.next_request(), await life.nvml.next_request()] == [FOLLOW, MAKE_NODES]
        life.nvml.show(state())
        assert await life.kubelet.next_list() == WELL

    play(folder, act)


def test_nvidia_may_be_asked_for_while_the_agent_runs(folder: Path) -> None:
    """And no more: its list is emptied."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        life.config.write_text("nvidia: {}\n")
        os.kill(os.getpid(), signal.SIGHUP)
        await life.kubelet.next_registration()
        await life.list_of(WELL)
        life.config.write_text("resources: []\n")
        os.kill(os.getpid(), signal.SIGHUP)
        assert [await life.kubelet.next_list(), await life.kubelet.next_list()] == [{}, None]

    play(folder, act, "resources: []\n")


def test_instances_have_resources_of_their_own(folder: Path) -> None:
    """An Xid of one takes that one."""

    async def act(life: Life) -> None:
        caps = [f"gpu0/mig/gi{gi}{ci}/access" for gi in (1, 2) for ci in ("", "/ci0")]
        said = state(split(0, "1g.5gb", "1g.5gb"))
        said = said._replace(nodes=(*said.nodes, *state_nodes(caps)))
        await life.nvml.start(said)
        names = {(await life.kubelet.next_registration()).resource_name for _ in range(2)}
        assert names == {GPU, "nvidia.com/mig-1g.5gb"}
        await life.list_of({"MIG-0-1": "Healthy", "MIG-0-2": "Healthy"})
        life.nvml.show(said._replace(xids=(xid(1, 94, gi=2, ci=0),)))
        await life.list_of({"MIG-0-1": "Healthy", "MIG-0-2": "Unhealthy"})

    play(folder, act, "nvidia: {migStrategy: mixed}\n")


def state_nodes(caps: list[str]) -> list[NodeState]:
    """Return the nodes of capabilities."""
    return [node for node in nodes(caps=caps) if node.capability]


def test_scan_shows_gpus(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is held against them, and without writing anything."""
    (folder / "config.yaml").write_text("nvidia: {}\n")
    flags = ("--config", str(folder / "config.yaml"), "--root", str(folder), "--nvml-socket", str(folder / "nvml.sock"),
             "--state-dir", str(folder / "state"))  # fmt: skip

    async def act() -> int:
        nvml = Nvml(folder)
        await nvml.start()
        nvml.line = dump_state(state(card(0), card(1, fabric="it is in progress")))
        status = await asyncio.to_thread(run, ["scan", *flags], {})
        await nvml.stop()
        return status

    assert asyncio.run(act()) == 1
    rows = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:3] == [GPU, "GPU-0", "0"]
    assert rows[1][3].startswith("healthy")
    assert rows[2][3].startswith("the fabric of NVSwitch is not ready for it: it is in progress")
    assert not (folder / "state").exists()
