"""Followers of the use of cards, at a real supervisor: who gets what, and what the child hears."""

import os
import signal
from pathlib import Path

import pytest

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import (
    FOLLOW,
    FOLLOW_USE,
    LEAVE_USE,
    LONGEST_REQUEST,
    LOOK,
    Request,
    dump_request,
    parse_request,
)
from device_agent.gpu_state.state import ABSENT, OK
from device_agent.gpu_state.state_json import parse_state
from device_agent.gpu_state.use import CardUse, Use, XidCount
from device_agent.nvml_container.clients import MOST_CLIENTS
from device_agent.nvml_container.messages import Look, XidSeen, dump_message
from tests.unit.device_agent.gpu_state.examples import CARD
from tests.unit.device_agent.nvml_container.running import StandIn, wait_for

WELL = dump_message(Look(OK, driver="550.54.15", cards=(CARD,)))
USE = Use("", 12.5, (CardUse("GPU-1", "0000:3b:00.0", "nvidia", 0),), pods=("a/b",))
PODS = tuple(f"namespace-{'n' * 40}/pod-{'p' * 120}-{number}" for number in range(1024))
"""More than a pipe takes at once."""


def large(at: float) -> bytes:
    """Write a use that no socket takes at once."""
    values = {"power_w": 1e6 + 1 / 3, "energy_mj": 1e6 + 1 / 3, "memory_used": 1 << 50}
    cards = tuple(CardUse(f"GPU-{n:0120}", "0000:3b:00.0", "nvidia", 0, "x" * 500, values=values) for n in range(256))
    return dump_message(Use("", at, cards, pods=PODS))


def heard(running: StandIn) -> list[Request]:
    """Return what the children were asked about use since they have started."""
    lines = [line for line in running.left("asked").replace("-{", "\n{").split("\n") if line.startswith("{")]
    return [parse_request(line.encode()) for line in lines]


def wait_until_heard(running: StandIn, request: Request) -> None:
    """Wait until the child was asked for this last."""
    wait_for(lambda: running.left("asked").endswith("\n") and heard(running)[-1] == request, f"{request.name}")


def test_followers_of_use_get_it_and_nobody_else(tmp_path: Path) -> None:
    """With the session of the container; a client that follows both gets both."""
    with StandIn(tmp_path, WELL + dump_message(USE)) as running:
        user, follower, both = running.user(("a/b",)), running.follower(), running.follower()
        both.ask(FOLLOW_USE, ("a/b",))
        session = follower.state().session
        assert user.use() == USE._replace(session=session)
        assert [parse_state(follower.line()).session for _ in range(10)] == [session] * 10
        kinds: set[bool] = set()
        while len(kinds) < 2:
            kinds.add(b'"use":' in both.line())


def test_xid_events_are_counted_since_the_container_has_started(tmp_path: Path) -> None:
    """Also while nobody follows, and over children; the last one is last."""
    with StandIn(tmp_path, dump_message(XidSeen("GPU-1", 79)) + WELL) as running:
        running.follower().state(lambda state: bool(state.xids))
        os.kill(running.child(), signal.SIGKILL)
        running.do(dump_message(XidSeen("GPU-1", 31)) + dump_message(XidSeen("GPU-2", 31)) + dump_message(USE) + WELL)
        use = running.user().use(lambda use: len(use.xids) == 3)
        assert [(one.uuid, one.xid) for one in use.xids] == [("GPU-1", 79), ("GPU-1", 31), ("GPU-2", 31)]
        later = running.user().use(lambda later: later.xids[-1].count > use.xids[-1].count)
        assert isinstance(later.xids[0], XidCount)
        assert later.xids[0] == use.xids[0]


def test_the_child_samples_from_the_first_follower_to_the_last_one(tmp_path: Path) -> None:
    """The newest list of pods counts; when its client has gone, that of the one before."""
    with StandIn(tmp_path, WELL, look=1e6, silence=1e6) as running:
        running.follower().state()
        first = running.user(("a/b",))
        wait_until_heard(running, Request(FOLLOW_USE, ("a/b",)))
        second = running.user()
        wait_until_heard(running, Request(FOLLOW_USE))
        second.ask(FOLLOW_USE, ("c/d", "a/b"))
        wait_until_heard(running, Request(FOLLOW_USE, ("c/d", "a/b")))
        second.close()
        wait_until_heard(running, Request(FOLLOW_USE, ("a/b",)))
        first.ask(LEAVE_USE)
        wait_until_heard(running, Request(LEAVE_USE))
        first.ask(FOLLOW_USE)
        wait_until_heard(running, Request(FOLLOW_USE))
        first.close()
        wait_until_heard(running, Request(LEAVE_USE))


def test_the_same_request_again_is_not_asked_again(tmp_path: Path) -> None:
    """A client may say it as often as it likes."""
    with StandIn(tmp_path, WELL, look=1e6, silence=1e6) as running:
        client = running.follower()
        client.state()
        for _ in range(20):
            client.ask(FOLLOW_USE, ("a/b",))
        wait_until_heard(running, Request(FOLLOW_USE, ("a/b",)))
        client.ask(LOOK)
        wait_for(lambda: Request(LOOK) in heard(running), "the look")
        assert heard(running).count(Request(FOLLOW_USE, ("a/b",))) == 1


def test_the_next_child_knows_from_its_start_what_is_followed(tmp_path: Path) -> None:
    """Also a list that no pipe takes at once."""
    with StandIn(tmp_path, WELL) as running:
        running.user(PODS)
        running.follower().state()
        os.kill(running.child(), signal.SIGKILL)
        wait_for(lambda: running.left("used").count("\n") >= 2, "another child")
        assert parse_request(running.left("used").split("\n")[1].encode()) == Request(FOLLOW_USE, PODS)


def test_a_child_that_reads_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Lists of pods that fill its pipe wait in the supervisor, the newest one alone, and are written when it reads."""
    with StandIn(tmp_path, WELL, look=0.1, silence=1e6) as running:
        follower, user = running.follower(), running.client()
        follower.state()
        child = running.child()
        os.kill(child, signal.SIGSTOP)
        for number in range(20):
            user.ask(FOLLOW_USE, PODS[number:])
        for _ in range(3):
            assert follower.state().status == OK
        user.ask(FOLLOW_USE, ("a/b",))
        follower.state()
        os.kill(child, signal.SIGCONT)
        wait_until_heard(running, Request(FOLLOW_USE, ("a/b",)))
        assert len(heard(running)) < 10


def test_a_slow_follower_gets_the_newest_use_and_others_go_on(tmp_path: Path) -> None:
    """Those in between are left out; each line that it gets is whole."""
    with StandIn(tmp_path, WELL + large(1.0), look=1e6, silence=1e6, sign_of_life=1e6, idle=1e6) as running:
        slow, user, asking = running.user(), running.user(), running.follower()
        asking.state()
        for number in range(2, 9):
            running.do(WELL + large(float(number)))
            asking.ask(LOOK)
            user.use(lambda use, number=number: use.at == number)  # type: ignore[misc]
        seen: list[float] = []
        while not seen or seen[-1] != 8.0:
            seen.append(slow.use().at)
        assert len(seen) < 8


def test_a_follower_of_both_that_is_slow_gets_the_newest_of_each(tmp_path: Path) -> None:
    """A use does not take the place of a state."""
    with StandIn(tmp_path, WELL + large(1.0), look=1e6, silence=1e6, sign_of_life=1e6, idle=1e6) as running:
        slow, user, asking = running.user(), running.user(), running.follower()
        slow.ask(FOLLOW)
        asking.state()
        for number in range(2, 6):
            running.do(dump_message(Look(OK, driver=str(number))) + large(float(number)))
            asking.ask(LOOK)
            user.use(lambda use, number=number: use.at == number)  # type: ignore[misc]
        lines: list[bytes] = []
        while not any(b'"at":5.0' in line for line in lines) or not any(b'"driver":"5"' in line for line in lines):
            lines.append(slow.line())
        assert len(lines) < 8


def test_a_follower_of_use_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    """It would keep a place, and lines in memory; nobody samples for it any more."""
    with StandIn(tmp_path, WELL + large(1.0), look=0.1, idle=1.0) as running:
        sleeper = running.user()
        wait_for(lambda: Request(FOLLOW_USE) in heard(running), "its request")
        wait_until_heard(running, Request(LEAVE_USE))
        assert sleeper.has_ended()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            b'{"version":1,"request":"follow-use","limits":null,"pods":[1]}\n',
            "pods.0. is not NAMESPACE/NAME",
            id="no pod",
        ),
        pytest.param(
            b'{"version":1,"request":"follow-use","limits":null,"pods":["../b"]}\n',
            "is not NAMESPACE/NAME",
            id="a path",
        ),
        pytest.param(b"[" + b"0," * 200_000 + b"\n", "at most 1024 pods", id="a list that would fill the memory"),
        pytest.param(b"[" * 500_000 + b"\n", "is not JSON", id="lists in lists"),
        pytest.param(b"x" * (LONGEST_REQUEST + 1), "at most 1048576 are allowed", id="a line that is too long"),
    ],
)
def test_a_hostile_request_ends_its_client_alone(tmp_path: Path, line: bytes, message: str) -> None:
    """Others get their samples."""
    with StandIn(tmp_path, WELL + dump_message(USE)) as running:
        user = running.user(("a/b",))
        client = running.client()
        client.connection.sendall(line)
        with pytest.raises(StateInvalid, match=message):
            parse_state(client.line())
        assert client.has_ended()
        assert user.use().pods == ("a/b",)


def resident(pid: int) -> int:
    """Return the KiB that a process has in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def test_eight_clients_with_the_longest_requests_need_bounded_memory(tmp_path: Path) -> None:
    """Each sends almost a whole request again and again, byte by byte at last; the supervisor answers on."""
    with StandIn(tmp_path, WELL + dump_message(USE), idle=1e6) as running:
        user = running.user(PODS)
        user.use()
        before = resident(running.process.pid)
        clients = [running.client() for _ in range(MOST_CLIENTS - 1)]
        for client in clients:
            for _ in range(4):
                client.connection.sendall(dump_request(FOLLOW_USE, PODS))
            client.connection.sendall(dump_request(FOLLOW_USE, PODS)[:-1])
        for _ in range(3):
            user.use()
        for client in clients:
            client.use()
        assert resident(running.process.pid) < before + 24 * 1024


def test_without_a_driver_the_child_that_has_waited_is_replaced_at_once_while_use_is_followed(tmp_path: Path) -> None:
    """Otherwise after a pause: there is no process that stays."""
    absent = dump_message(Look(ABSENT, "there is no libnvidia-ml.so.1"))
    with StandIn(tmp_path, absent, "end") as running:
        running.follower().state()
        wait_for(lambda: running.children() == [], "the end of the child")
        assert running.left("pids").count("\n") == 1
        user = running.user()
        wait_for(lambda: running.left("pids").count("\n") > 3, "more children")
        user.close()
        wait_for(lambda: running.children() == [] and is_steady(running), "no more children")


def is_steady(running: StandIn) -> bool:
    """Return whether no child has started for some looks."""
    before = running.left("pids")
    follower = running.follower()
    for _ in range(4):
        follower.state()
    return running.left("pids") == before
