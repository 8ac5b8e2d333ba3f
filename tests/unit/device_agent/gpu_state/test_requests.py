"""What the container nvml can be asked."""

import json

import pytest

from device_agent.errors import StateInvalid
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.requests import (
    CHANGE_MIG,
    END,
    FOLLOW_USE,
    LONGEST_REQUEST,
    REQUESTS,
    Request,
    dump_error,
    dump_request,
    parse_request,
)
from device_agent.gpu_state.state_json import parse_state
from device_agent.gpu_state.use import MOST_POD_LIMITS, MOST_PODS

LONGEST_POD = "n" * 63 + "/" + ".".join(["p" * 63] * 3) + "." + "p" * 61
TOO_MANY = ",".join(['"a/b"'] * (MOST_PODS + 1))


@pytest.mark.parametrize("request_", [pytest.param(one, id=one) for one in REQUESTS if one not in {END, CHANGE_MIG}])
def test_a_request_is_read_as_it_was_written(request_: str) -> None:
    """Each of the closed set."""
    assert parse_request(dump_request(request_).rstrip(b"\n")) == Request(request_)


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((), id="none"),
        pytest.param(("team-a/train-0", "kube-system/x.y.z"), id="two"),
        pytest.param((LONGEST_POD,) * MOST_PODS, id="as many and as long as there may be"),
    ],
)
def test_pods_are_read_as_they_were_written(pods: tuple[str, ...]) -> None:
    """Those whose processes are wanted; none is something else than not to ask for processes."""
    line = dump_request(FOLLOW_USE, pods)
    assert len(line) <= LONGEST_REQUEST
    assert parse_request(line.rstrip(b"\n")) == Request(FOLLOW_USE, pods)


def asking(pods: str) -> bytes:
    """Write a request with anything in the place of pods."""
    return b'{"version":1,"request":"follow-use","limits":null,"pods":' + pods.encode() + b"}"


def limiting(*limits: object) -> bytes:
    """Write a request with anything in the place of limits."""
    return json.dumps({"version": 1, "request": FOLLOW_USE, "pods": None, "limits": limits}).encode()


LIMIT = {"card": "GPU-1", "pod": "a/b", "limit": 1, "devices": 1}


def test_limits_are_read_as_they_were_written() -> None:
    """As many and as long as there may be, beside as many pods; none is something else than to say nothing of them."""
    many = tuple(PodLimit(f"GPU-{n:0124}", LONGEST_POD, 2**53, 2**20) for n in range(MOST_POD_LIMITS))
    for limits in (None, (), many):
        line = dump_request(FOLLOW_USE, (LONGEST_POD,) * MOST_PODS, limits=limits)
        assert len(line) <= LONGEST_REQUEST
        assert parse_request(line.rstrip(b"\n")).limits == limits


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"follow", id="a word"),
        pytest.param(b'{"version":1}', id="nothing asked"),
        pytest.param(b'{"version":1,"request":"reset"}', id="another request"),
        pytest.param(b'{"version":1,"request":["follow"]}', id="a list"),
        pytest.param(b'{"version":1,"request":"make-nodes","path":"/dev/sda"}', id="a path"),
        pytest.param(b'{"version":2,"request":"follow"}', id="another version"),
        pytest.param(b'{"version":1,"request":"follow"}' + b" " * LONGEST_REQUEST, id="too long"),
        pytest.param(b'{"version":1,"request":"follow","pods":null}', id="pods of the state"),
        pytest.param(b'{"version":1,"request":"follow-use"}', id="use without pods"),
        pytest.param(asking('"a/b"'), id="one pod that is no list"),
        pytest.param(asking("[null]"), id="no pod"),
        pytest.param(asking('["b"]'), id="no namespace"),
        pytest.param(asking('["a/"]'), id="no name"),
        pytest.param(asking('["a/b/c"]'), id="three parts"),
        pytest.param(asking('["a.b/c"]'), id="a namespace with a dot"),
        pytest.param(asking('["A/b"]'), id="a capital letter"),
        pytest.param(asking('["a/../b"]'), id="a path as pod"),
        pytest.param(asking('["a/b\\n"]'), id="a line break"),
        pytest.param(asking(f'["{"n" * 64}/p"]'), id="a long namespace"),
        pytest.param(asking(f'["n/{"p" * 254}"]'), id="a long name"),
        pytest.param(asking(f"[{TOO_MANY}]"), id="too many pods"),
        pytest.param(b'{"version":1,"request":"follow-use","pods":null}', id="use without limits"),
        pytest.param(limiting({**LIMIT, "limit": 0}), id="a limit of nothing"),
        pytest.param(limiting({**LIMIT, "limit": 2**53 + 1}), id="an endless limit"),
        pytest.param(limiting({**LIMIT, "pod": "a/../b"}), id="a path as a limit's pod"),
        pytest.param(limiting({**LIMIT, "card": ""}), id="a limit on no card"),
        pytest.param(limiting({**LIMIT, "devices": 0}), id="a limit without a device"),
        pytest.param(limiting({**LIMIT, "folder": "/sys/fs/cgroup/x"}), id="a limit with a folder"),
        pytest.param(limiting(LIMIT, {**LIMIT, "limit": 2}), id="two limits of a pod on a card"),
        pytest.param(
            limiting(*({**LIMIT, "card": f"GPU-{n}"} for n in range(MOST_POD_LIMITS + 1))), id="too many limits"
        ),
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    """No path and no command comes over the socket."""
    with pytest.raises(StateInvalid):
        parse_request(line)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(asking("[" + "0," * 100_000 + "0]"), id="numbers"),
        pytest.param(asking("[" + "{}," * 100_000 + "{}]"), id="objects"),
    ],
)
def test_a_list_without_an_end_is_refused_before_its_values_are_made(line: bytes) -> None:
    """Each would need many times the memory of its text."""
    with pytest.raises(StateInvalid, match=f"at most {MOST_PODS} pods"):
        parse_request(line)


def test_an_error_is_read_as_one() -> None:
    """A client that asks for the wrong thing gets its reason where it expects a state."""
    with pytest.raises(StateInvalid, match="the container nvml answered with an error: a request is one of"):
        parse_state(dump_error("a request is one of follow").rstrip(b"\n"))
