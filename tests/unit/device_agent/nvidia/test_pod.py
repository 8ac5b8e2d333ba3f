"""The pod's two programs together: the agent, and the container ``nvml`` with the real pynvml on the test library."""

import os
import stat
from pathlib import Path

import pytest

from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.device_agent.device_nodes.driver_texts import DEVICES, INFORMATION, PARAMS
from tests.unit.device_agent.host_tree import needs_root
from tests.unit.device_agent.nvidia.life import Life, play
from tests.unit.device_agent.nvml_container.running import WithNvml

GPUS = 4


@pytest.fixture
def node(folder: Path) -> Path:
    """Make a node whose driver is loaded, and whose device nodes are not there."""
    driver = folder / "proc/driver/nvidia"
    (folder / "proc/devices").parent.mkdir()
    (folder / "proc/devices").write_text(DEVICES)
    for minor in range(GPUS):
        card = driver / f"gpus/0000:{0x10 + minor:02x}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(INFORMATION.format(minor=minor))
    (driver / "params").write_text(PARAMS)
    (folder / "sys/module/nvidia").mkdir(parents=True)
    (folder / "dev").mkdir()
    try:
        os.mknod(folder / "try", stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("mknod is not permitted here")
    return folder


@pytest.fixture
def machine(node: Path) -> FakeMachine:
    """Make a machine of four GPUs."""
    return FakeMachine(node / "machine", A100_40, GPUS)


def health(machine: FakeMachine, *unhealthy: int) -> dict[str, str]:
    """Return the kubelet's list: all are healthy but these."""
    return {machine.uuid(gpu): "Unhealthy" if gpu in unhealthy else "Healthy" for gpu in range(GPUS)}


@needs_root
def test_from_the_driver_to_the_kubelet(node: Path, machine: FakeMachine, library: Path) -> None:
    """Nodes are made once the kubelet knows the resource; an Xid, a GPU that is lost, and a library that hangs."""

    async def act(life: Life) -> None:
        assert (await life.kubelet.next_registration()).resource_name == "nvidia.com/gpu"
        await life.list_of(health(machine))
        assert (node / "dev/nvidia3").is_char_device()
        machine.xid(1, 31)
        with machine.at_once():
            machine.set(0, "recovery", 1)
            machine.xid(0, 79)
        assert await life.kubelet.next_list() == health(machine, 0)
        machine.lose(2)
        assert await life.kubelet.next_list() == health(machine, 0, 2)
        machine.hang("count")
        assert await life.kubelet.next_list() == health(machine, 0, 1, 2, 3)
        machine.heal()
        assert await life.kubelet.next_list() == health(machine, 0, 2)

    with WithNvml(node, library, machine.environment(), silence=2.0):
        play(node, act)
