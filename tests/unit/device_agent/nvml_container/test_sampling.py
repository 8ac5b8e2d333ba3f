"""Samples of the use of cards: whose processes are in them, and when they are taken."""

import time
from pathlib import Path

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.requests import FOLLOW_USE, LEAVE_USE, Request
from device_agent.gpu_state.use import MOST_DEVICES, MOST_IN_ALL, MOST_PROCESSES, CardUse, ProcessUse, Use
from device_agent.gpu_state.use_json import dump_use, parse_use
from device_agent.nvml_container.sampling import Sampling
from device_agent.nvml_container.settings import Places
from nvml_inventory.values import DeviceUse, Process
from tests.unit.device_agent.nvml_container.node_folder import (
    OTHER_POD,
    POD,
    UID,
    NodeFolder,
    plain,
    two_pods,
)

AMD, PCI = "0000:0a:00.0", "0000:3b:00.0"
GIB = 1 << 30
GPU = DeviceUse("GPU-1", PCI, 0, name="NVIDIA H200", values={"power_w": 312.5})
MIG = DeviceUse("MIG-1", PCI, 0, parent="GPU-1", profile="1g.18gb", gi=7, values={"memory_used": GIB})


@pytest.fixture
def node(tmp_path: Path) -> NodeFolder:
    """Make a node with two pods, of which each has a process; 30 is of no pod."""
    return two_pods(tmp_path)


def sampling(node: NodeFolder, *pods: str, asks: bool = True) -> Sampling:
    """Follow the use of cards with the processes of pods, or without processes."""
    places = Places(root=str(node.root), proc_root=str(node.root))
    return Sampling(places, 3.0, Request(FOLLOW_USE, pods if asks else None))


def take(of: Sampling, *devices: DeviceUse) -> Use:
    """Take a sample, which has to be one that its reader accepts."""
    use = of.take(lambda: devices)
    assert parse_use(dump_use(use)) == use
    return use


def test_cards_have_what_nvml_and_the_kernel_say(node: NodeFolder) -> None:
    """Without processes, and without a reason, where they were not asked for."""
    node.card(1, AMD, "amdgpu", {"gpu_busy_percent": "12\n"})
    before = seconds_since_boot()
    use = take(sampling(node, asks=False), GPU._replace(processes=(Process(10, GIB),)), MIG)
    assert use.cards == (
        CardUse("GPU-1", PCI, "nvidia", 0, name="NVIDIA H200", values={"power_w": 312.5}),
        CardUse("MIG-1", PCI, "nvidia", 0, "", "GPU-1", "1g.18gb", 7, {"memory_used": GIB}),
        CardUse(AMD, AMD, "amdgpu", 1, values={"busy_percent": 12}),
    )
    assert (use.pods, use.processes) == (None, "")
    assert before <= use.at <= seconds_since_boot()


def test_the_time_is_from_before_the_first_value_was_read(node: NodeFolder) -> None:
    """NVML may take its time."""
    times: list[float] = []

    def read() -> tuple[DeviceUse, ...]:
        times.append(seconds_since_boot())
        return ()

    assert sampling(node).take(read).at <= times[0]


def test_processes_are_of_pods_that_were_asked_for(node: NodeFolder) -> None:
    """Neither those of other pods, nor the node's, nor one that is gone; what NVML does not know is not known."""
    found = tuple(Process(pid, memory, busy) for pid, memory, busy in
                  ((10, None, 12.5), (20, GIB, 1.0), (30, GIB, None), (40, GIB, None)))  # fmt: skip
    use = take(sampling(node, POD, "team-c/nobody"), GPU._replace(processes=found), MIG)
    assert use.cards[0].processes == (ProcessUse(10, 100, plain(UID), POD, None, 12.5),)
    assert (use.cards[1].processes, use.pods, use.processes) == ((), (POD,), "")


def test_a_pod_without_a_folder_is_not_known(node: NodeFolder) -> None:
    """Which processes are its own cannot be said, and none is not 0 bytes: as before the kubelet has made it."""
    (node.root / f"var/log/pods/{POD.replace('/', '_')}_{UID}").rmdir()
    of = sampling(node, POD, OTHER_POD)
    use = take(of, GPU._replace(processes=(Process(10, GIB), Process(20, GIB))))
    assert (use.pods, use.processes) == ((OTHER_POD,), "")
    assert [one.pod for one in use.cards[0].processes] == [OTHER_POD]
    node.pod(POD, UID)
    assert take(of, GPU).pods == (POD, OTHER_POD)


def test_a_process_that_has_started_after_nvml_was_asked_is_another_one(node: NodeFolder) -> None:
    """It has the number of one that NVML has named, and has ended since."""
    node.process(10, UID, start=10**14)
    assert take(sampling(node, POD), GPU._replace(processes=(Process(10, GIB),))).cards[0].processes == ()


def test_processes_of_other_drivers_cards_are_found_by_their_open_files(node: NodeFolder) -> None:
    """Of pods that were asked for alone; no other process's files are read."""
    node.card(1, AMD, "amdgpu")
    for pid in (10, 20, 30):
        node.opened(pid, 3, f"drm-client-id:\t{pid}\ndrm-pdev:\t{AMD}\ndrm-resident-vram:\t{GIB}\n")
    [card] = take(sampling(node, POD)).cards
    assert card.processes == (ProcessUse(10, 100, plain(UID), POD, GIB),)


def test_a_pod_with_too_many_open_files_is_named_beside_what_is_known_of_it(node: NodeFolder) -> None:
    """Only where there are cards of other drivers: NVML's list of a GPU's processes has no such bound."""
    (node.proc / "10/fd").mkdir()
    for number in range((1 << 13) + 1):
        (node.proc / "10/fd" / f"x{number}").touch()
    of = sampling(node, POD, OTHER_POD)
    gpu = GPU._replace(processes=(Process(10, GIB),))
    assert take(of, gpu).unread == ()
    node.card(1, AMD, "amdgpu")
    use = take(of, gpu)
    assert use.unread == (POD,)
    assert [one.pid for one in use.cards[0].processes] == [10]


def test_while_not_all_processes_were_looked_at_no_pods_use_of_other_cards_is_known(
    node: NodeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was left out may have the card. The next samples go on with those."""
    node.card(1, AMD, "amdgpu")
    monkeypatch.setattr("device_agent.nvml_container.processes._MOST_READ", 2)
    of = sampling(node, POD)
    assert [take(of).unread for _ in range(3)] == [(POD,), (POD,), ()]


def test_a_pod_that_is_asked_for_later_has_its_processes_at_once(node: NodeFolder) -> None:
    """They were others' until then."""
    node.card(1, AMD, "amdgpu")
    for pid in (10, 20):
        node.opened(pid, 3, f"drm-client-id:\t{pid}\ndrm-pdev:\t{AMD}\ndrm-resident-vram:\t{GIB}\n")
    of = sampling(node, POD)
    take(of)
    of.follow(Request(FOLLOW_USE, (OTHER_POD,)))
    assert [one.pid for one in take(of).cards[0].processes] == [20]


@pytest.mark.parametrize(
    ("without", "why"),
    [
        pytest.param("var/log/pods", "/var/log/pods cannot be read", id="logs of pods"),
        pytest.param("proc/1/cgroup", "/proc/1/cgroup is missing", id="the node's processes"),
    ],
)
def test_why_processes_are_not_known_is_said(node: NodeFolder, without: str, why: str) -> None:
    """Nothing is counted for anybody then."""
    (node.root / without).rename(node.root / "away")
    use = take(sampling(node, POD), GPU._replace(processes=(Process(10, GIB),)))
    assert why in use.processes
    assert use.pods == ()
    assert use.cards[0].processes == ()
    assert take(sampling(node, asks=False), GPU).processes == ""


def test_a_card_that_makes_no_sense_is_left_out(node: NodeFolder) -> None:
    """The others are there; of two with one UUID the first."""
    cards = (GPU, GPU._replace(uuid="GPU 2"), GPU._replace(index=1), GPU._replace(uuid="GPU-3", values={"fan": 1}), MIG)
    assert [card.id for card in take(sampling(node), *cards).cards] == ["GPU-1", "MIG-1"]


def test_processes_and_cards_are_bounded(node: NodeFolder) -> None:
    """Those with most memory are kept, of a card and of all."""
    for pid in range(100, 100 + MOST_PROCESSES + 10):
        node.process(pid, UID)
    many = tuple(Process(pid, pid) for pid in range(100, 100 + MOST_PROCESSES + 10))
    cards = [DeviceUse(f"GPU-{n}", PCI, n, processes=many if n < 3 else ()) for n in range(MOST_DEVICES + 5)]
    use = take(sampling(node, POD), *cards)
    assert len(use.cards) == MOST_DEVICES
    assert sum(len(card.processes) for card in use.cards) == MOST_IN_ALL
    assert min(one.memory or 0 for card in use.cards for one in card.processes) > 110


def test_samples_are_due_while_they_are_asked_for(node: NodeFolder) -> None:
    """Every so many seconds, and soon after other pods were asked for: but not at once each time."""
    of = Sampling(Places(root=str(node.root), proc_root=str(node.root)), 3.0, Request(LEAVE_USE))
    assert (of.is_followed, of.rest()) == (False, float("inf"))
    of.follow(Request(FOLLOW_USE))
    assert (of.is_followed, of.rest()) == (True, 0.0)
    begin = time.monotonic()
    take(of)
    assert of.rest() >= 3.0 - (time.monotonic() - begin)
    of.follow(Request(FOLLOW_USE, (POD,)))
    assert 1.0 - (time.monotonic() - begin) <= of.rest() <= 1.0
    of.follow(Request(LEAVE_USE))
    assert of.rest() == float("inf")
