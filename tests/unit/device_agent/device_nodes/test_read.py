"""What is read of /proc, and what is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from device_agent.device_nodes.read import MAX_CAPABILITIES, MAX_CARDS, read_proc
from device_agent.device_nodes.values import CardFiles, Proc
from device_agent.device_nodes.wanted import wanted_nodes
from tests.unit.device_agent.device_nodes.driver_texts import CAPABILITIES, DEVICES, PARAMS, card
from tests.unit.device_agent.host_tree import HostTree

REPOSITORY = Path(__file__).parents[4]
DRIVER = "/proc/driver/nvidia"
FORBIDDEN = {"asyncio", "dataclasses", "inspect", "json", "logging", "pathlib", "subprocess", "tempfile", "threading"}
"""What NVML's supervisor does without."""


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """Make a host with a driver of one card."""
    host = HostTree(tmp_path)
    host.file("/proc/devices", DEVICES)
    host.file(f"{DRIVER}/params", PARAMS)
    host.file(f"{DRIVER}/gpus/0000:3b:00.0/information", card(0).information)
    for path, text in CAPABILITIES.items():
        host.file(f"{DRIVER}/capabilities/{path}", text)
    return host


def test_a_driver_is_read(host: HostTree) -> None:
    """All that decides on nodes is there, to the letter."""
    assert read_proc(host.path) == Proc(DEVICES, PARAMS, (card(0),), CAPABILITIES, "")


def test_a_host_without_a_driver(tmp_path: Path) -> None:
    """What is not there is empty, and no error."""
    assert read_proc(str(tmp_path)) == Proc("", "", (), {}, "")


def test_other_names_are_left_out(host: HostTree) -> None:
    """Only what a driver names so is opened."""
    for name in ("0000:3b:00.0x", "card0", "\u0660000:3b:00.0"):
        host.file(f"{DRIVER}/gpus/{name}/information", "Device Minor: 9\n")
    for path in ("gpu0/mig/gi1/cix/access", "gpu0/mig/other/access", "gpuX/mig/gi1/access", "gpu0/mig/gi1/ci0/other"):
        host.file(f"{DRIVER}/capabilities/{path}", "DeviceFileMinor: 9\n")
    assert read_proc(host.path) == Proc(DEVICES, PARAMS, (card(0),), CAPABILITIES, "")


def test_a_card_that_does_not_answer(host: HostTree) -> None:
    """The other one is read, and the reason is named."""
    host.remove(f"{DRIVER}/gpus/0000:3b:00.0/information")
    (host.root / f"{DRIVER}/gpus/0000:3b:00.0/information".lstrip("/")).mkdir()
    host.file(f"{DRIVER}/gpus/0000:3c:00.0/information", card(1).information)
    found = read_proc(host.path)
    assert found.cards == (CardFiles("0000:3b:00.0", ""), CardFiles("0000:3c:00.0", card(1).information))
    assert found.why == f"{DRIVER}/gpus/0000:3b:00.0/information cannot be read: Is a directory"


def test_a_file_that_has_no_end(host: HostTree) -> None:
    """It is not read into memory, and the nodes are not decided by a part of it."""
    host.file("/proc/devices", DEVICES + "x" * 70_000)
    found = read_proc(host.path)
    assert (found.devices, found.why) == ("", "/proc/devices has more than 65536 bytes")
    assert wanted_nodes(*found[:4], unread=found.why).why == found.why


def test_too_many_cards(host: HostTree) -> None:
    """The first ones are read, and it is said that there are more."""
    for number in range(MAX_CARDS + 1):
        host.file(f"{DRIVER}/gpus/0001:{number:02x}:00.0/information", card(number).information)
    found = read_proc(host.path)
    assert len(found.cards) == MAX_CARDS
    assert f"more than {MAX_CARDS} cards" in found.why


def test_too_many_capabilities(host: HostTree) -> None:
    """The first ones are read, and it is said that there are more."""
    for gi in range(MAX_CAPABILITIES // 8):
        for ci in range(8):
            host.file(f"{DRIVER}/capabilities/gpu9/mig/gi{gi}/ci{ci}/access", "DeviceFileMinor: 1\n")
    found = read_proc(host.path)
    assert len(found.capabilities) <= MAX_CAPABILITIES
    assert f"more than {MAX_CAPABILITIES} files" in found.why


def test_what_is_no_text_is_read(host: HostTree) -> None:
    """Bytes that are no text stand for a character, and are no error."""
    (host.root / "proc/devices").write_bytes(b"Character devices:\n195 nvid\xffia\n")
    assert read_proc(host.path).devices == "Character devices:\n195 nvid\ufffdia\n"


def test_it_needs_little() -> None:
    """What the supervisor keeps in memory loads none of Python's larger modules."""
    script = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from device_agent.device_nodes import make, read, wanted\n"
        "print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert not FORBIDDEN & set(printed.stdout.split())
