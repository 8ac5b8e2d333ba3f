"""Which nodes the driver has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.device_nodes.parse import parse_majors
from device_agent.device_nodes.values import CardFiles, Wanted
from device_agent.device_nodes.wanted import capability_paths, strangers, wanted_nodes
from tests.unit.device_agent.device_nodes.driver_texts import (
    ACCESS,
    CAPABILITIES,
    DEVICES,
    DEVICES_BEFORE_550,
    PARAMS,
    card,
    wanted,
)

ALL = [
    ("/dev/nvidiactl", 195, 255, 0o660, 0, 44),
    ("/dev/nvidia-modeset", 195, 254, 0o660, 0, 44),
    ("/dev/nvidia-uvm", 511, 0, 0o666, 0, 0),
    ("/dev/nvidia-uvm-tools", 511, 1, 0o666, 0, 0),
    ("/dev/nvidia0", 195, 0, 0o660, 0, 44),
    ("/dev/nvidia3", 195, 3, 0o660, 0, 44),
    ("/dev/nvidia-caps/nvidia-cap12", 236, 12, 0o444, 0, 0),
    ("/dev/nvidia-caps/nvidia-cap13", 236, 13, 0o444, 0, 0),
    ("/dev/nvidia-caps/nvidia-cap1", 236, 1, 0o400, 0, 0),
    ("/dev/nvidia-caps/nvidia-cap2", 236, 2, 0o444, 0, 0),
]

TEXTS = st.text(alphabet="0123456789: \nDeviceMnorFlUIGd-", max_size=80)


def paths(wanted: Wanted) -> list[str]:
    """Return the paths of the nodes, without their folder."""
    return [node.path.removeprefix("/dev/") for node in wanted.nodes]


@pytest.mark.parametrize(
    "devices", [pytest.param(DEVICES, id="since 550"), pytest.param(DEVICES_BEFORE_550, id="before")]
)
def test_all_nodes_of_a_driver(devices: str) -> None:
    """Numbers, owners and modes are the driver's, but for nvidia-uvm's owner and mode and a capability's."""
    found = wanted(devices, minors=(0, 3))
    assert [tuple(node[:6]) for node in found.nodes] == ALL
    assert not any(node.forbidden for node in found.nodes)
    assert (found.why, found.may_remove) == ("", True)


def test_a_capability_keeps_its_path() -> None:
    """So a MIG instance finds its two nodes."""
    found = {node.capability: node.path for node in wanted().nodes if node.capability}
    assert [found[path] for path in capability_paths(0, 1, 0)] == [
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        pytest.param("195 nvidia-modeset\n", {"nvidia-modeset"}, id="the module nvidia-modeset"),
        pytest.param("511 nvidia-uvm\n", {"nvidia-uvm", "nvidia-uvm-tools"}, id="the module nvidia-uvm"),
        pytest.param(
            "236 nvidia-caps\n", {f"nvidia-caps/nvidia-cap{n}" for n in (1, 2, 12, 13)}, id="capabilities"
        ),
    ],
)  # fmt: skip
def test_a_module_that_is_not_loaded_has_no_nodes(without: str, missing: set[str]) -> None:
    """The others are there."""
    assert set(paths(wanted())) - set(paths(wanted(DEVICES.replace(without, "")))) == missing


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param("", id="no text"),
        pytest.param("Character devices:\n  1 mem\n\nBlock devices:\n", id="no driver"),
        pytest.param("Character devices:\n195 nvidiactlx\n", id="a name that only begins alike"),
    ],
)
def test_without_a_driver_there_are_no_nodes(devices: str) -> None:
    """And the reason is named."""
    found = wanted(devices)
    assert found.nodes == ()
    assert "no driver of NVIDIA's is loaded" in found.why


def test_what_cannot_be_read_is_the_reason() -> None:
    """A file that cannot be read does not mean that no driver is loaded."""
    found = wanted_nodes("", "", (), {}, unread="/proc/devices cannot be read: Permission denied")
    assert (found.nodes, found.why) == ((), "/proc/devices cannot be read: Permission denied")


@pytest.mark.parametrize(
    ("params", "mode", "owner"),
    [
        pytest.param("A: 1\n", 0o666, (0, 0), id="nvidia-modprobe's defaults"),
        pytest.param("DeviceFileMode: 438\nDeviceFileUID: 5\nDeviceFileGID: 6\n", 0o666, (5, 6), id="an owner"),
        pytest.param("DeviceFileMode: 2480\n", 0o660, (0, 0), id="no bits but permissions"),
    ],
)
def test_owner_and_mode(params: str, mode: int, owner: tuple[int, int]) -> None:
    """The driver's parameters are decimal numbers."""
    node = next(node for node in wanted(params=params).nodes if node.path == "/dev/nvidia0")
    assert (node.mode, (node.uid, node.gid)) == (mode, owner)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        pytest.param("", "/proc/driver/nvidia/params is empty or cannot be read", id="no parameters"),
        pytest.param("DeviceFileMode: rw\n", "DeviceFileMode is rw instead of a number", id="a mode that is none"),
        pytest.param("DeviceFileUID: 4294967295\n", "DeviceFileUID is 4294967295", id="the id of nobody at all"),
        pytest.param("ModifyDeviceFiles: \n", "ModifyDeviceFiles is ", id="an empty value"),
    ],
)
def test_without_the_parameters_nothing_is_made_or_removed(params: str, why: str) -> None:
    """Whether it may be is not known then."""
    found = wanted(params=params)
    assert (found.nodes, found.may_remove) == ((), False)
    assert why in found.why


def test_a_driver_may_forbid_all_nodes() -> None:
    """ModifyDeviceFiles 0 counts for nvidia-uvm and for capabilities, too."""
    found = wanted(params=PARAMS.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"))
    assert len(found.nodes) == 9
    assert all("ModifyDeviceFiles is 0" in node.forbidden for node in found.nodes)
    assert not found.may_remove


def test_a_capability_may_forbid_its_node() -> None:
    """The others may be made."""
    found = wanted_nodes(DEVICES, PARAMS, (), {"mig/config": ACCESS.format(minor=1, mode=256, modify=0)})
    assert {node.path: node.forbidden for node in found.nodes if node.forbidden} == {
        "/dev/nvidia-caps/nvidia-cap1": "DeviceFileModify of capability mig/config is 0"
    }


@pytest.mark.parametrize(
    "information",
    [
        pytest.param("", id="empty"),
        pytest.param("Device Minor: \t 248\n", id="a minor that no card has"),
        pytest.param("Device Minor: x\n", id="no number"),
    ],
)
def test_a_card_without_a_minor_has_a_reason(information: str) -> None:
    """The other card has its node."""
    found = wanted_nodes(DEVICES, PARAMS, [CardFiles("0000:3b:00.0", information), card(1)], {})
    assert "nvidia1" in paths(found)
    assert found.why == "the driver does not say the minor number of card 0000:3b:00.0"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "capability mig/config: it has no DeviceFileMinor", id="empty"),
        pytest.param(ACCESS.format(minor=1048576, mode=0, modify=1), "a number up to 1048575", id="too large"),
    ],
)
def test_a_capability_without_a_minor_has_a_reason(text: str, why: str) -> None:
    """The other one has its node."""
    capabilities = {**CAPABILITIES, "mig/config": text}
    found = wanted_nodes(DEVICES, PARAMS, (), capabilities)
    assert "nvidia-caps/nvidia-cap2" in paths(found)
    assert "nvidia-caps/nvidia-cap1" not in paths(found)
    assert why in found.why


@pytest.mark.parametrize(
    ("path", "major", "expected"),
    [
        pytest.param("/dev/nvidia-uvm", 511, set(), id="its own driver"),
        pytest.param("/dev/nvidia-uvm", 509, set(), id="nobody"),
        pytest.param("/dev/nvidia-uvm", 4, {"/dev/vc/0", "tty"}, id="another driver"),
        pytest.param("/dev/nvidia-uvm-tools", 236, {"nvidia-caps"}, id="another one of NVIDIA's"),
        pytest.param("/dev/nvidia-caps/nvidia-cap1", 511, {"nvidia-uvm"}, id="a capability that is none"),
        pytest.param("/dev/nvidia7", 195, set(), id="a card"),
        pytest.param("/dev/nvidia-modeset", 195, set(), id="modeset"),
    ],
)
def test_whose_a_node_is(path: str, major: int, expected: set[str]) -> None:
    """A node is a stranger's when its major number is, and no driver of that path has it."""
    assert strangers(path, major, parse_majors(DEVICES)) == expected


@given(TEXTS, TEXTS, TEXTS)
def test_any_text_of_a_driver(params: str, information: str, access: str) -> None:
    """Whatever it writes, nodes have numbers that the kernel has, and reasons are one short line."""
    found = wanted_nodes(DEVICES, params, [CardFiles("0000:3b:00.0", information)], {"mig/config": access})
    assert len(found.why) <= 500
    assert found.why.isprintable()
    for node in found.nodes:
        assert 0 <= node.minor < 2**20
        assert 0 <= node.mode <= 0o777
        assert node.path.startswith("/dev/nvidia")
