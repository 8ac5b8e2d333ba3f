"""The device nodes of a driver that is loaded, loaded again with other numbers, and gone, on a real kernel.

The driver is a stand-in of ours (``tests/data/gpustand-driver``), built by our template for Debian; what makes the
nodes runs in device-agent's own image.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from testbed.kernels import KernelPackage
from testbed.testbed import Testbed
from tests.kernel.test_loader_and_node import build
from tests.kernel.test_loader_on_real_kernels import edu_request
from tests.support.device_agent import nodes_in_guest
from tests.support.nfd_worker.machines import Machine, printing, scan, stock_kernel, worker_disk

pytestmark = pytest.mark.long

SOURCE = Path(__file__).parents[1] / "data" / "gpustand-driver"
SCRIPT = Path(nodes_in_guest.__file__)
CAPABILITIES = {1: 0o400, 2: 0o444, 12: 0o444, 13: 0o444}


class Did(NamedTuple):
    """What became of /dev at each step; see :class:`tests.support.device_agent.nodes_in_guest.Moment`."""

    steps: Mapping[str, Any]

    def __call__(self, step: str) -> nodes_in_guest.Moment:
        """Return what there was after a step."""
        moment = nodes_in_guest.Moment(**self.steps[step])
        return moment._replace(nodes={path: tuple(node) for path, node in moment.nodes.items()})


def request_of(kernel: KernelPackage) -> BuildRequest:
    """Ask for the stand-in."""
    return replace(
        edu_request(kernel),
        recipe=f"test-gpustand-{kernel.release}",
        driver=DriverKey("drivers/gpustand"),
        source=SourceFiles(files={path.name: path.read_bytes() for path in sorted(SOURCE.iterdir())}),
        modules=(ModuleSpec(name="gpustand"),),
    )


@pytest.fixture(scope="module")
def module(engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Build the stand-in for the kernel that is booted."""
    client = engine_ground.engine.client()
    try:
        image = build(client, request_of(stock_kernel()), tmp_path_factory.mktemp("image"))
    finally:
        client.close()
    (content,) = [entry.content for entry in image.entries if entry.path.endswith("/gpustand.ko")]
    return content


@pytest.fixture(scope="module")
def did(engine_ground: Testbed, module: bytes, tmp_path_factory: pytest.TempPathFactory) -> Did:
    """Boot a machine and go through all steps."""
    kernel = stock_kernel()
    machine = Machine(
        arguments=("-M", "pc", "-cpu", "max", "-m", "512"),
        command=printing(f"python3 /{SCRIPT.name}"),
        files={"gpustand.ko": module, SCRIPT.name: SCRIPT.read_text()},
    )
    disk = worker_disk(engine_ground, tmp_path_factory.mktemp("disk"), "device-agent").make(kernel, machine, "")
    return Did(scan(disk, kernel, machine))


def answers(paths: Iterable[str]) -> dict[str, str]:
    """Return what each of a driver's nodes answers when it is the right one."""
    names = {"nvidiactl": "nvidiactl 255", "nvidia-modeset": "nvidia-modeset 254"}
    names |= {f"nvidia{minor}": f"nvidia {minor}" for minor in (0, 1)}
    names |= {"nvidia-uvm": "nvidia-uvm 0", "nvidia-uvm-tools": "nvidia-uvm 1"}
    names |= {f"nvidia-caps/nvidia-cap{minor}": f"nvidia-caps {minor}" for minor in CAPABILITIES}
    return {path: names[path.removeprefix("/dev/")] for path in paths}


def test_without_a_driver_nothing_is_made(did: Did) -> None:
    """And the reason is named."""
    moment = did("without a driver")
    assert (moment.nodes, moment.links, moment.whys) == ({}, {}, {})
    assert "no driver of NVIDIA's is loaded" in moment.why


def test_a_driver_that_is_loaded_gets_its_nodes(did: Did) -> None:
    """All that it registered, with the owner and mode that it says, and each is the device that its name says."""
    moment = did("loaded")
    capabilities = moment.nodes["/dev/nvidia-caps/nvidia-cap1"][0]
    assert moment.nodes == {
        "/dev/nvidia0": (195, 0, 0o660, 0, 44),
        "/dev/nvidia1": (195, 1, 0o660, 0, 44),
        "/dev/nvidiactl": (195, 255, 0o660, 0, 44),
        "/dev/nvidia-modeset": (195, 254, 0o660, 0, 44),
        "/dev/nvidia-uvm": (240, 0, 0o666, 0, 0),
        "/dev/nvidia-uvm-tools": (240, 1, 0o666, 0, 0),
        **{f"/dev/nvidia-caps/nvidia-cap{n}": (capabilities, n, mode, 0, 0) for n, mode in CAPABILITIES.items()},
    }
    assert moment.answers == answers(moment.nodes)
    assert (moment.why, moment.whys, set(moment.did.values())) == ("", {}, {"made"})


def test_each_node_has_its_link(did: Did) -> None:
    """By its numbers, in /dev/char."""
    moment = did("loaded")
    expected = {f"{node[0]}:{node[1]}": path.replace("/dev/", "../") for path, node in moment.nodes.items()}
    assert moment.links == expected


def test_an_open_node_keeps_the_module(did: Did) -> None:
    """So a test of an upgrade has a module that is in use: by the node's device and by the open file."""
    assert list(did("loaded").in_use) == [2, 0]


def test_what_is_right_stays(did: Did) -> None:
    """The second time nothing is written."""
    first, second = did("loaded"), did("once more")
    assert (second.did, second.whys) == ({}, {})
    assert (second.nodes, second.links) == (first.nodes, first.links)


def test_nodes_of_a_driver_that_is_unloaded_stay(did: Did) -> None:
    """They open nothing."""
    moment = did("unloaded")
    assert moment.nodes == did("loaded").nodes
    assert set(moment.answers.values()) == {"No such device or address"}
    assert moment.did == {}


def test_a_stale_node_is_another_drivers_device(did: Did) -> None:
    """Which is why it is replaced: the old node of nvidia-uvm opens the stranger that got its numbers."""
    moment = did("loaded with other numbers")
    assert moment.answers["/dev/nvidia-uvm"] == "gpustand-stranger 0"
    assert moment.whys["/dev/nvidia-uvm"] == "it is 240:0 instead of 241:0"
    assert moment.links["240:0"] == "../nvidia-uvm"


def test_a_reload_with_other_numbers_replaces_the_nodes(did: Did) -> None:
    """Each opens its own driver again, and no link has the old numbers."""
    moment = did("and made")
    assert moment.nodes["/dev/nvidia-uvm"] == (241, 0, 0o666, 0, 0)
    assert moment.did["/dev/nvidia-uvm"] == "replaced: it is 240:0 instead of 241:0"
    own = {path: answer for path, answer in moment.answers.items() if path != "/dev/nvidia1"}
    assert own == answers(own)
    assert {name: target for name, target in moment.links.items() if "uvm" in target} == {
        "241:0": "../nvidia-uvm",
        "241:1": "../nvidia-uvm-tools",
    }
    assert moment.whys == {}


def test_the_node_of_a_card_that_is_gone_opens_nothing(did: Did) -> None:
    """It stays: its numbers are no stranger's."""
    assert did("and made").answers["/dev/nvidia1"] == "No such device"


def test_a_node_that_became_a_strangers_is_removed(did: Did) -> None:
    """The driver has no nvidia-uvm any more, and another one has its numbers."""
    assert did("unloaded again").did == {}
    moment = did("loaded without nvidia-uvm")
    removed = {
        path for path, did in moment.did.items() if did.startswith("removed: it is a device of gpustand-stranger")
    }
    assert removed == {"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert not removed & set(moment.nodes)
    assert not [name for name, target in moment.links.items() if "uvm" in target]


def test_a_driver_that_forbids_nodes_gets_none(did: Did) -> None:
    """Each has the reason, so that its card is not offered."""
    moment = did("loaded with ModifyDeviceFiles 0")
    assert (moment.nodes, moment.links, moment.did) == ({}, {}, {})
    assert "/dev/nvidia0" in moment.whys
    assert all("ModifyDeviceFiles is 0" in why for why in moment.whys.values())
