"""Clients that misbehave, at a real socket: nobody else notices."""

import select
from contextlib import suppress
from pathlib import Path

import pytest

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import FOLLOW, LONGEST_REQUEST, LOOK, dump_request
from device_agent.gpu_state.state import OK, CardState
from device_agent.gpu_state.state_json import LONGEST_LINE, parse_state
from device_agent.nvml_container.clients import MOST_CLIENTS
from device_agent.nvml_container.messages import Look, dump_message
from tests.unit.device_agent.gpu_state.examples import CARD
from tests.unit.device_agent.nvml_container.running import SECONDS, Client, StandIn, wait_for

WELL = dump_message(Look(OK, driver="550.54.15", cards=(CARD,)))


def large(driver: str) -> bytes:
    """Write an inventory that no socket takes at once."""
    links = tuple((f"GPU-{n:0120}", n) for n in range(64))
    cards = tuple(CardState(n, f"GPU-{n}", "x" * 500, links=links, fabric="x" * 500) for n in range(64))
    line = dump_message(Look(OK, driver=driver, cards=cards))
    assert LONGEST_LINE / 2 < len(line) < LONGEST_LINE
    return line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"rubbish\n", "is not JSON", id="rubbish"),
        pytest.param(b"\n", "is not JSON", id="an empty line"),
        pytest.param(
            b'{"version":1,"request":"reset"}\n', "a request is one of follow, make-nodes", id="another request"
        ),
        pytest.param(dump_request(LOOK) + b"x\n" + dump_request(FOLLOW), "is not JSON", id="rubbish in between"),
        pytest.param(b"x" * (LONGEST_REQUEST + 1), "at most 1048576 are allowed", id="a line that is too long"),
        pytest.param(b"x" * (1 << 22), "at most 1048576 are allowed", id="a line without an end"),
    ],
)
def test_what_is_no_request_is_answered_with_an_error_and_the_end(tmp_path: Path, line: bytes, message: str) -> None:
    """Others go on."""
    with StandIn(tmp_path, WELL) as running:
        client = running.client()
        with suppress(OSError):  # it is refused after the first part of it
            client.connection.sendall(line)
        with pytest.raises(StateInvalid, match=message):
            parse_state(client.line())
        assert client.has_ended()
        assert running.follower().state().status == OK


def test_a_client_may_go_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Of its own, and of one that it reads."""
    with StandIn(tmp_path, large("1"), look=0.05) as running:
        follower = running.follower()
        follower.state()
        for request in (b'{"version":1,"req', dump_request(FOLLOW)):
            client = running.client()
            client.connection.sendall(request)
            client.close()
        half = running.follower()
        assert half.connection.recv(10)
        half.close()
        running.do(large("2"))
        assert follower.state(lambda state: state.driver == "2")


def test_there_are_so_many_clients_and_no_more(tmp_path: Path) -> None:
    """The others get a reason; when one goes, there is room for another one."""
    with StandIn(tmp_path, WELL) as running:
        clients = [running.follower() for _ in range(MOST_CLIENTS)]
        for client in clients:
            client.state()
        for _ in range(50):
            refused = running.client()
            with pytest.raises(StateInvalid, match="there are 8 clients already"):
                parse_state(refused.line())
            assert refused.has_ended()
        clients[0].close()
        wait_for(lambda: answers(running.client()), "room for another one")
        assert clients[-1].state().status == OK


def answers(client: Client) -> bool:
    """Return whether a client gets a state."""
    try:
        client.ask(FOLLOW)
        return bool(client.state())
    except (StateInvalid, OSError):
        return False


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    """Without that it would keep a place, and a line in memory. Others go on."""
    with StandIn(tmp_path, large("0"), look=1e6, idle=1.0) as running:
        sleeper = running.client()
        sleeper.ask(FOLLOW)
        hung_up = select.poll()
        hung_up.register(sleeper.connection, 0)
        assert hung_up.poll(1000 * SECONDS)
        running.do(WELL)
        running.client().ask(LOOK)
        assert running.follower().state(lambda state: len(state.cards) == 1)


def test_a_slow_client_gets_the_newest_state(tmp_path: Path) -> None:
    """Those in between are left out, and are not kept; each line that it gets is whole."""
    with StandIn(tmp_path, large("0"), look=1e6, sign_of_life=1e6, idle=1e6) as running:
        slow, follower = running.client(), running.follower()
        slow.ask(FOLLOW)
        for number in range(8):
            running.do(large(str(number)))
            follower.ask(LOOK)
            follower.state(lambda state, number=number: state.driver == str(number))  # type: ignore[misc]
        seen: list[str] = []
        while not seen or seen[-1] != "7":
            seen.append(slow.state().driver)
        assert len(seen) < 8


def test_a_client_that_asks_nothing_is_dropped(tmp_path: Path) -> None:
    """It would keep another one's place."""
    with StandIn(tmp_path, WELL, idle=0.2) as running:
        follower = running.follower()
        assert running.client().has_ended()
        follower.state()
        assert follower.state().status == OK
