"""A real kubelet, real pods and their real processes: who uses which card, and what is ended for its memory.

NVML is a test's: it names the PIDs of real processes of containers, and what they are said to use.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.testbed import Testbed
from tests.support.real_parts import with_pid
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS
from tests.support.real_parts.gpu_use import GIB, Used, used_cards
from tests.support.real_parts.gpu_worker import worker
from tests.support.real_parts.shared_cards import WHOLE

pytestmark = pytest.mark.long

KILLED = 128 + signal.SIGKILL


@pytest.fixture(scope="module")
def used(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    """Have four cards of four shares each, the agent with exporter and limits, and the node's own /proc and pods."""
    with used_cards(ground, tmp_path_factory.mktemp("u")) as made:
        yield made


@pytest.fixture(scope="module")
def pods(used: Used) -> tuple[str, str]:
    """Have two pods that share a card, each with a process on it, and a third process in no pod."""
    names = ("big", "small")
    card = used.run_pods(*names)
    used.uses(card, {used.pid("big"): 4, used.pid("small"): 2})
    return names


@contextmanager
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Have a process in no pod, which lives at the end."""
    process = subprocess.Popen(["sleep", "3600"])
    try:
        yield process
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_each_pod_of_a_shared_card_has_series_of_its_own(used: Used, pods: tuple[str, str]) -> None:
    """Beside the card's, whose labels are empty; a process in no pod counts in the card's alone."""
    card = used.card_of(*pods)
    with stranger() as process:
        used.uses(card, {process.pid: 30, used.pid("big"): 4, used.pid("small"): 2})
        used.shows_memory(card, of_all=36, big=4, small=2)
        used.shows("^device_agent_device_allocated", {"big": 1, "small": 1})
        said = used.node.page("/who")[1]
        assert all(f'"pod":"{pod}"' in said for pod in pods)
    used.node.machine.remove_process(card, process.pid)


def test_a_dry_run_ends_nothing(used: Used, pods: tuple[str, str]) -> None:
    """It is logged and counted."""
    card, since = used.card_of(*pods), used.cards.said()
    used.node.machine.add_process(card, used.pid("big"), 12 * GIB)
    used.cards.logs(since, "driverwright/big", "would be ended, but memory.dryRun is set")
    used.cards.place.cluster.wait(
        "it is counted", lambda: "memory_kills_total{" in used.node.page("/metrics")[1] or None, timeout=SECONDS
    )
    assert [used.exit_code(pod) for pod in pods] == [None, None]
    used.node.machine.add_process(card, used.pid("big"), 4 * GIB)


def test_a_process_over_its_limit_is_ended_and_its_neighbour_lives(used: Used, pods: tuple[str, str]) -> None:
    """Exit code 137 of the one pod; the other one, and a process in no pod with ten times as much, live on."""
    card, since = used.card_of(*pods), used.cards.said()
    used.configure(is_dry=False)
    used.cards.logs(since, "config.yaml changed")
    with stranger() as process:
        used.uses(card, {process.pid: 120, used.pid("big"): 12, used.pid("small"): 2})
        assert used.wait_for_end("big") == KILLED
        used.cards.logs(since, "driverwright/big", "was ended")
        assert used.exit_code("small") is None


def test_containers_of_a_pod_count_together_and_its_largest_process_is_ended(used: Used) -> None:
    """Each has a share of the card, and each may use more than its own: the limit is the pod's."""
    since = used.starts()
    used.cards.start_containers("pair", {"large": 1, "little": 1})
    card = used.run_pods("beside")
    large, little, beside = used.pid("pair", "large"), used.pid("pair", "little"), used.pid("beside")
    assert used.containers() == {("pair", "large"): {card}, ("pair", "little"): {card}, ("beside", "main"): {card}}
    used.uses(card, {large: 12, little: 7, beside: 9})
    used.shows_memory(card, of_all=28, pair=19, beside=9)
    used.has_limits(card, pair=20, beside=10)
    assert [used.exit_code("pair", one) for one in ("large", "little")] == [None, None]
    used.uses(card, {large: 12, little: 9, beside: 9})
    assert used.wait_for_end("pair", "large") == KILLED
    used.cards.logs(since, f"{NAMESPACE}/pair", f"process {large} was ended")
    used.shows_memory(card, of_all=30, pair=9, beside=9)
    assert [used.exit_code("pair", "little"), used.exit_code("beside")] == [None, None]
    assert used.containers().keys() >= {("pair", "little"), ("beside", "main")}


def test_a_pod_with_the_processes_of_the_node_is_known_by_its_own(used: Used) -> None:
    """It sees all processes, and has its own cgroup; one without a device counts for nobody and is never ended."""
    since = used.starts()
    used.cards.start_containers("sees-all", {"main": 1}, host_pid=True)
    used.cards.start_containers("without", {"main": 0}, host_pid=True)
    used.run_pods("beside")
    card = used.card_of("sees-all", "beside")
    sees_all, without, beside = (used.pid(pod) for pod in ("sees-all", "without", "beside"))
    used.uses(card, {sees_all: 4, without: 100, beside: 2})
    used.shows_memory(card, of_all=106, **{"sees-all": 4, "beside": 2})
    used.uses(card, {sees_all: 12, without: 100, beside: 2})
    assert used.wait_for_end("sees-all") == KILLED
    used.cards.logs(since, f"{NAMESPACE}/sees-all", f"process {sees_all} was ended")
    assert [used.exit_code("without"), used.exit_code("beside")] == [None, None]
    assert f"{NAMESPACE}/without" not in used.cards.log.read_text()


def delete(used: Used, pod: str, pid: int) -> None:
    """Delete the pod."""
    used.cards.delete(pod)
    used.wait_until_gone(pid)


def end(used: Used, pod: str, pid: int) -> None:
    """Have the process end by itself."""
    os.kill(pid, signal.SIGTERM)
    used.wait_until_gone(pid)
    assert used.wait_for_end(pod) == 0


@pytest.mark.parametrize("leave", [pytest.param(delete, id="deleted"), pytest.param(end, id="ended by itself")])
def test_nobody_is_ended_in_the_place_of_a_pod_that_is_gone(
    used: Used, leave: Callable[[Used, str, int], None]
) -> None:
    """It goes between the decision and the kill. The log says why nothing was ended, and limits are kept as before."""
    since = used.starts()
    card = used.run_pods("goes", "beside")
    goes, beside = used.pid("goes"), used.pid("beside")
    with used.requests.held():
        used.uses(card, {goes: 12, beside: 9})
        used.waits_for_request(goes)
        leave(used, "goes", goes)
    answer = used.answer(goes)
    # A request that a slow machine kept for more than ten seconds is refused for that.
    assert answer == f"process {goes} has ended" or answer.endswith(" s old")
    used.cards.logs_one_of(since, f"{NAMESPACE}/goes: not ended: {answer}", "did not say what became of process")
    assert used.exit_code("beside") is None
    used.uses(card, {beside: 12})
    assert used.wait_for_end("beside") == KILLED
    print(f"\nnot ended: {answer}")


def test_a_process_that_got_the_number_of_the_chosen_one_lives(used: Used) -> None:
    """The chosen one ends between the decision and the kill, and the kernel gives its PID to another process."""
    since = used.starts()
    card = used.run_pods("goes")
    goes = used.pid("goes")
    command = [sys.executable, "-m", with_pid.__name__, str(goes), "sleep", "3600"]
    with subprocess.Popen(command) as starter:
        try:
            with used.requests.held():
                used.uses(card, {goes: 12})
                used.waits_for_request(goes)
                os.kill(goes, signal.SIGTERM)
                used.cards.place.cluster.wait(
                    "the PID is used again", lambda: name_of(goes) == "sleep" or None, timeout=SECONDS, every=0.02
                )
            answer = used.answer(goes)
            assert f"process {goes} is another one now" in answer or answer.endswith(" s old")
            used.cards.logs_one_of(
                since, f"{NAMESPACE}/goes: not ended: {answer}", "did not say what became of process"
            )
            assert starter.poll() is None
            assert name_of(goes) == "sleep"
            print(f"\nnot ended: {answer}")
        finally:
            starter.kill()
            if name_of(goes) == "sleep":
                os.kill(goes, signal.SIGKILL)


def test_the_worker_on_the_node_labels_how_cards_are_shared(used: Used) -> None:
    """It reads what the agent has written, and again when the profile changes."""
    used.starts()
    with worker(used.node) as log:

        def shows(**wanted: str) -> None:
            wanted = {f"nvidia.com/gpu.{name.replace('_', '-')}": value for name, value in wanted.items()}
            used.cards.place.cluster.wait(
                f"labels {wanted}", lambda: wanted.items() <= used.labels().items() or None, timeout=SECONDS,
                seen=lambda: f"{used.labels()}; {log.read_text()[-2000:]}",
            )  # fmt: skip

        shows(count="4", product="NVIDIA-A100-SXM4-40GB", replicas="4", sharing_strategy="time-slicing")
        used.cards.write(WHOLE)
        shows(count="4", replicas="1", sharing_strategy="none")
    assert not any(key.startswith("nvidia.com/") for key in used.labels())


def test_nothing_is_ended_while_the_kubelet_is_away(used: Used) -> None:
    """Nobody says who has which card then: there are no series of pods. When it is back, the limit is kept."""
    since = used.starts()
    card = used.run_pods("big", "beside")
    big, beside = used.pid("big"), used.pid("beside")
    used.uses(card, {big: 4, beside: 2})
    used.shows_memory(card, of_all=6, big=4, beside=2)
    used.cards.place.ground.host_node.stop()
    try:
        used.cards.logs(since, "it is not known which pod has which device")
        # Each number that is shown is of another sample, three seconds after the one before: the grace is over then.
        for size in (12, 13, 14, 15):
            used.uses(card, {big: size, beside: 2})
            used.shows_memory(card, of_all=size + 2)
        assert name_of(big)
        assert f"{NAMESPACE}/big" not in used.cards.log.read_bytes()[since:].decode()
    finally:
        used.cards.place.ground.host_node.start()
    assert used.wait_for_end("big") == KILLED
    used.cards.logs(since, f"{NAMESPACE}/big", f"process {big} was ended")
    assert used.exit_code("beside") is None


def name_of(pid: int) -> str:
    """Return the name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
