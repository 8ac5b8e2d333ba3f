"""The inventory with the real pynvml, on a small library of our own in place of the driver's (tests/nvml).

Each is read in a process of its own: a process loads one NVML library, and keeps it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_inventory.values import Mig
from tests.nvml import DRIVER, H100, build
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40

READ = """
import json, sys
from nvml_inventory.inventory import read_inventory
found = read_inventory(library=sys.argv[1])
cards = [{"kind": type(card).__name__, **card._asdict()} for card in found.cards]
print(json.dumps({"driver": found.driver, "cuda": found.cuda, "cards": cards}))
"""

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def read(library: Path, tmp_path: Path) -> Read:
    """Give a function that reads the inventory of a machine."""

    def run(machine: str, library: Path = library) -> dict[str, Any]:
        (tmp_path / "machine").write_text(machine, errors="surrogateescape")
        environment = {
            "PATH": os.environ["PATH"],
            "FAKE_NVML_MACHINE": str(tmp_path / "machine"),
            "FAKE_NVML_LOG": str(tmp_path / "log"),
        }
        command = (sys.executable, "-I", "-c", READ, str(library))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    return run


def peers(found: dict[str, Any]) -> list[list[str]]:
    """Return which GPUs each GPU reaches, by the digit of their bus."""
    return [[address[5] for address in card["nvlink_peers"]] for card in found["cards"] if card["kind"] == "Card"]


def gpus(*facts: str) -> str:
    """Describe a machine of so many GPUs, with what is said of each besides."""
    return DRIVER + "".join(f"{H100.format(n=n)}{more}\n" for n, more in enumerate(facts, 1))


# ---------------------------------------------------------------- card by card

SECOND = ("GPU-2", "0000:2b:00.0")
"""What the second GPU is called, as far as it says so."""


@pytest.mark.parametrize(
    ("trouble", "reason", "named"),
    [
        pytest.param("lost 15", "GPU is lost; the kernel log has an Xid message", (15, "", ""), id="lost"),
        pytest.param(
            "lost 999", "Unknown Error; check that this container may use", (999, "", ""), id="with an unknown error"
        ),
        pytest.param("fault ecc 16", "GPU requires restart; drain the node", (16, *SECOND), id="lost while it is read"),
        pytest.param("fault link 15", "GPU is lost; ", (15, *SECOND), id="lost while its links are read"),
        pytest.param("name \udcff", "NVML's answer makes no sense: ", (0, *SECOND), id="a name that is no text"),
        pytest.param("uuid \udcff", "NVML's answer makes no sense: ", (0, "", SECOND[1]), id="a UUID that is no text"),
        pytest.param("pci none", "NVML's answer makes no sense: ", (0, SECOND[0], ""), id="a PCI address that is none"),
    ],
)
def test_a_card_that_cannot_be_read_has_a_reason_and_the_others_are_there(
    read: Read, tmp_path: Path, trouble: str, reason: str, named: tuple[int, str, str]
) -> None:
    """NVML counts a lost card as before; the place in the list stays its index. NVML is shut down."""
    found = read(gpus("", trouble, ""))
    assert (found["driver"], found["cuda"]) == ("550.54.15", 12040)
    assert [card["kind"] for card in found["cards"]] == ["Card", "Unreadable", "Card"]
    assert [found["cards"][at]["uuid"] for at in (0, 2)] == ["GPU-1", "GPU-3"]
    bad = found["cards"][1]
    assert bad["reason"].startswith(f"GPU 1 cannot be read: {reason}")
    assert (bad["index"], bad["error"], bad["uuid"], bad["pci"]) == (1, *named)
    assert (tmp_path / "log").read_text().split() == ["init", "shutdown"]


def test_a_node_whose_cards_are_all_lost_has_a_driver(read: Read) -> None:
    """Each card has its own reason."""
    found = read(gpus("lost 15", "lost 15"))
    assert found["driver"] == "550.54.15"
    assert [card["reason"][:20] for card in found["cards"]] == ["GPU 0 cannot be read", "GPU 1 cannot be read"]


# ---------------------------------------------------------------- NVLink

SWITCH = "link 2 00000000:F1:00.0"
"""A link to NVSwitch."""
TO = "link 0 00000000:{}B:00.0"
"""A link to the GPU with this digit."""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            (f"{SWITCH}\np2p 6 0 0", f"{SWITCH}\np2p 0 6 0", f"{SWITCH}\np2p 0 0 6"),
            [["2", "3"], ["1", "3"], ["1", "2"]],
            id="behind NVSwitch",
        ),
        pytest.param((f"{SWITCH}\np2p 6 5", f"{SWITCH}\np2p 5 6"), [[], []], id="behind NVSwitch without a fabric"),
        pytest.param((SWITCH, SWITCH), [[], []], id="behind NVSwitch, with an old driver"),
        pytest.param(
            ("p2p 6 5 0 5", "p2p 5 6 5 0", "p2p 0 5 6 5", "p2p 5 0 5 6"),
            [["3"], ["4"], ["1"], ["2"]],
            id="islands of two",
        ),
        pytest.param((f"{TO.format(2)}\np2p 6 4", f"{TO.format(1)}\np2p 4 6"), [[], []], id="linked and switched off"),
        pytest.param((TO.format(2), TO.format(1)), [["2"], ["1"]], id="status not supported"),
        pytest.param(
            (f"{TO.format(2)}\np2p 6 6", f"{TO.format(1)}\np2p 6 6"), [["2"], ["1"]], id="status unknown to NVML"
        ),
        pytest.param(
            (f"{TO.format(2)}\nfault p2p 999\np2p 6 5", TO.format(1)), [["2"], ["1"]], id="status with an error"
        ),
        pytest.param(
            (f"{TO.format(2)}\n{TO.format(7)}\np2p 6 0", f"{TO.format(1)}\np2p 0 6"),
            [["2", "7"], ["1"]],
            id="a GPU that the container does not see",
        ),
        pytest.param(
            (f"{SWITCH}\np2p 6 0 0", "lost 15\np2p 0 6 0", f"{SWITCH}\np2p 0 0 6"),
            [["3"], ["1"]],
            id="one lost behind NVSwitch",
        ),
    ],
)
def test_a_card_names_the_cards_that_it_reaches_over_nvlink(
    read: Read, facts: tuple[str, ...], expected: list[list[str]]
) -> None:
    """NVML's status of each pair counts, otherwise the other ends of the links."""
    assert peers(read(gpus(*facts))) == expected


def test_a_library_that_knows_no_status_of_pairs_is_asked_for_links(read: Read, tmp_path: Path) -> None:
    """A driver of before the function is read as before."""
    old = build(tmp_path, "-DOLD_DRIVER")
    assert peers(read(gpus(TO.format(2), TO.format(1), SWITCH), old)) == [["2"], ["1"], []]


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        pytest.param(
            lambda machine: (machine.connect(0, 2, 4), machine.connect(0, 1, 1)), {1: 1, 2: 4}, id="from GPU to GPU"
        ),
        pytest.param(lambda machine: machine.connect_by_switch(18), {1: 18, 2: 18}, id="behind NVSwitch"),
        pytest.param(lambda machine: machine.connect(0, 1, 0), {1: 1}, id="without an active link of its own"),
    ],
)
def test_a_card_counts_the_links_to_each_card_that_it_reaches(
    read: Read, tmp_path: Path, connect: Callable[[FakeMachine], object], expected: dict[int, int]
) -> None:
    """More links are more bandwidth. Behind NVSwitch all of them lead to each card."""
    machine = FakeMachine(tmp_path / "elsewhere", count=3)
    connect(machine)
    card = read(machine.text())["cards"][0]
    assert card["nvlinks"] == [[machine.pci(gpu), links] for gpu, links in expected.items()]
    assert card["nvlink_peers"] == [machine.pci(gpu) for gpu in expected]


# ---------------------------------------------------------------- device files


def test_a_card_has_the_number_of_its_device_file(read: Read) -> None:
    """It need not be the index; None where the driver does not say."""
    assert [card["minor"] for card in read(gpus("minor 3", ""))["cards"]] == [3, None]


def test_a_mig_device_has_the_numbers_of_its_instances(read: Read, tmp_path: Path) -> None:
    """By these its device files and its Xid errors are found."""
    machine = FakeMachine(tmp_path / "elsewhere", A100_40)
    machine.add_mig(0, "3g.20gb", gi=5, ci=1)
    (mig,) = read(machine.text())["cards"][0]["migs"]
    found = Mig(*mig)
    assert (found.profile, found.memory_mib, found.gi, found.ci) == ("3g.20gb", 19968, 5, 1)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA A30", ""),
    ],
)
def test_a_mig_device_is_of_the_profile_that_its_name_ends_in(name: str, profile: str) -> None:
    """As the device plugin names its resource."""
    assert Mig("MIG-1", name, 4864, 14, 1, 1, 1, 0, 0, 0, 0).profile == profile


def test_a_version_that_is_no_text_is_a_driver_that_cannot_be_read(read: Read) -> None:
    """The child lives on to say so."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        read("driver \udcff\n")
    assert "DriverUnreadable: NVML cannot read the driver: its answer makes no sense" in failed.value.stderr
