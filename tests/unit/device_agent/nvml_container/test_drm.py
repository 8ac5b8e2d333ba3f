"""Cards of sysfs, and who uses them."""

from pathlib import Path

import pytest

from device_agent.gpu_state.use import CardUse, ProcessUse
from device_agent.nvml_container.drm import Clients, read_cards
from device_agent.nvml_container.processes import Process
from tests.unit.device_agent.nvml_container.node_folder import OTHER_UID, UID, NodeFolder, plain, stat

AMD, INTEL, NVIDIA = "0000:0a:00.0", "0000:03:00.0", "0000:3b:00.0"
GIB = 1 << 30


@pytest.fixture
def node(tmp_path: Path) -> NodeFolder:
    """Make a node without cards."""
    return NodeFolder(tmp_path)


def fdinfo(client: int, vram: int, pci: str = AMD) -> str:
    """Write what a driver says of a client."""
    return f"drm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{pci}\ndrm-resident-vram:\t{vram}\n"


# ---------------------------------------------------------------- cards


def test_cards_of_other_drivers_have_what_the_kernel_says(node: NodeFolder) -> None:
    """In the order of their indexes; connectors and render nodes are no cards, and NVIDIA's are NVML's."""
    node.card(
        10, AMD, "amdgpu",
        {"mem_info_vram_total": f"{64 * GIB}\n", "mem_info_vram_used": f"{GIB}\n", "gpu_busy_percent": "37\n",
         "product_name": "AMD Instinct MI300X\n", "power/runtime_status": "active\n"},
    )  # fmt: skip
    node.card(2, INTEL, "xe")
    node.card(0, NVIDIA, "nvidia")
    for name in ("renderD128", "card2-DP-1", "version"):
        (node.root / "sys/class/drm" / name).touch()
    values = {"memory_total": 64 * GIB, "memory_used": GIB, "memory_free": 63 * GIB, "busy_percent": 37}
    assert read_cards(f"{node.root}/") == (
        CardUse(INTEL, INTEL, "xe", 2),
        CardUse(AMD, AMD, "amdgpu", 10, name="AMD Instinct MI300X", values=values),
    )


@pytest.mark.parametrize(
    ("files", "values"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"mem_info_vram_total": "x\n", "gpu_busy_percent": "-1\n"}, {}, id="no numbers"),
        pytest.param({"gpu_busy_percent": "250\n"}, {"busy_percent": 100}, id="more than all"),
        pytest.param({"mem_info_vram_used": "5\n"}, {"memory_used": 5}, id="no total"),
        pytest.param(
            {"mem_info_vram_used": "5\n", "power/runtime_status": "suspended\n"}, {}, id="a card that is suspended"
        ),
    ],
)
def test_what_is_not_known_of_a_card_is_not_there(
    node: NodeFolder, files: dict[str, str], values: dict[str, float]
) -> None:
    """A card that is suspended would be woken by the question."""
    node.card(0, AMD, "amdgpu", files)
    assert [card.values for card in read_cards(str(node.root))] == [values]


@pytest.mark.parametrize(
    ("pci", "driver"),
    [
        pytest.param("simple-framebuffer.0", "simpledrm", id="no PCI device"),
        pytest.param(NVIDIA, "nvidia", id="NVIDIA's driver"),
    ],
)
def test_other_cards_are_left_out(node: NodeFolder, pci: str, driver: str) -> None:
    """NVML says more of its own, and a framebuffer of the firmware has no processes."""
    node.card(0, pci, driver)
    assert read_cards(str(node.root)) == ()


def test_a_node_without_drm_drivers_has_no_cards(tmp_path: Path) -> None:
    """Nothing is said of it."""
    assert read_cards(str(tmp_path)) == ()


# ---------------------------------------------------------------- processes


def processes(*numbers: int, uid: str = UID) -> list[Process]:
    """Make processes of a pod, as they were found."""
    return [Process(pid, 100, plain(uid)) for pid in numbers]


PODS = {plain(UID): "team-a/train-0", plain(OTHER_UID): "team-b/infer-0"}


def test_a_client_counts_once_however_many_descriptors_it_has(node: NodeFolder) -> None:
    """Two clients of a process are added; each card has its own."""
    node.process(17, UID)
    for descriptor, client, pci in ((3, 1, AMD), (4, 1, AMD), (5, 2, AMD), (6, 1, INTEL)):
        node.opened(17, descriptor, fdinfo(client, GIB, pci))
    used = Clients(str(node.proc)).read(processes(17), PODS)
    one = ProcessUse(17, 100, plain(UID), "team-a/train-0", GIB)
    assert used == {AMD: [one._replace(memory=2 * GIB)], INTEL: [one]}


def test_a_client_of_two_processes_counts_for_the_first_one(node: NodeFolder) -> None:
    """A child has its parent's descriptors; both together have no more than the card."""
    for pid in (17, 18):
        node.process(pid, UID)
        node.opened(pid, 3, fdinfo(1, GIB))
    node.opened(18, 4, fdinfo(2, 5))
    used = Clients(str(node.proc)).read(processes(17, 18), PODS)
    assert [(one.pid, one.memory) for one in used[AMD]] == [(17, GIB), (18, 5)]


@pytest.mark.parametrize(
    "memory",
    [pytest.param("", id="nothing"), pytest.param(f"drm-resident-vram:\t{2**60}\n", id="what makes no sense")],
)
def test_memory_that_the_driver_does_not_say_is_not_known(node: NodeFolder, memory: str) -> None:
    """Which is something else than none; the process has the card all the same."""
    node.process(17, UID)
    node.opened(17, 3, f"drm-client-id:\t1\ndrm-pdev:\t{AMD}\n{memory}")
    assert [one.memory for one in Clients(str(node.proc)).read(processes(17), PODS)[AMD]] == [None]


def test_busy_is_known_from_the_second_sample_on(node: NodeFolder) -> None:
    """It is the growth between two."""
    node.process(17, UID)
    clients = Clients(str(node.proc))
    for value, is_known in ((0, False), (10**18, True)):
        node.opened(17, 3, fdinfo(1, GIB) + f"drm-engine-gfx:\t{value} ns\n")
        [used] = clients.read(processes(17), PODS)[AMD]
        assert used.busy == (100.0 if is_known else None)


def test_what_was_read_of_a_process_that_is_another_one_by_now_does_not_count(node: NodeFolder) -> None:
    """Its number was used again since it was found."""
    (node.process(17, UID) / "stat").write_text(stat(17, 200))
    node.opened(17, 3, fdinfo(1, GIB))
    assert Clients(str(node.proc)).read(processes(17, 18), PODS) == {}


def test_the_open_files_of_a_pod_are_bounded_and_those_of_another_one_are_read(node: NodeFolder) -> None:
    """A pod that opens files without an end keeps nobody else's processes from being counted."""
    for pid, uid in ((17, UID), (18, OTHER_UID)):
        node.process(pid, uid)
        node.opened(pid, 3, fdinfo(pid, GIB))
    (node.proc / "17/fd").joinpath("full").mkdir()
    for number in range(1 << 13):
        (node.proc / "17/fd" / f"x{number}").touch()
    for number in range(3):
        node.process(20 + number, UID)
        node.opened(20 + number, 3, fdinfo(20 + number, GIB))
    clients = Clients(str(node.proc))
    used = clients.read([*processes(17, 20, 21, 22), *processes(18, uid=OTHER_UID)], PODS)
    assert [one.pid for one in used[AMD]][-1] == 18
    assert len(used[AMD]) < 3
    assert clients.unread == {plain(UID)}, "what it uses is not known, and is not what the first files have"
    (node.proc / "17/fd").rename(node.proc / "17/was")
    clients.read([*processes(17, 20, 21, 22), *processes(18, uid=OTHER_UID)], PODS)
    assert clients.unread == frozenset()


def test_as_many_open_files_as_are_looked_at_are_all_of_them(node: NodeFolder) -> None:
    """Also where the next process of the pod has none."""
    for pid in (17, 18):
        (node.process(pid, UID) / "fd").mkdir()
    for number in range(1 << 13):
        (node.proc / "17/fd" / f"x{number}").touch()
    clients = Clients(str(node.proc))
    clients.read(processes(17, 18), PODS)
    assert clients.unread == frozenset()
    (node.proc / "18/fd/3").touch()
    clients.read(processes(17, 18), PODS)
    assert clients.unread == {plain(UID)}
