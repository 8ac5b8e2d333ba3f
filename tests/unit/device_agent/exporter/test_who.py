"""Who has which device, as a page and as a table."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.allocations.given import Allocation
from device_agent.cli.main import run
from device_agent.cli.who_command import age
from device_agent.exporter.who import Clock, Known, who_page
from tests.unit.device_agent.usage.examples import GPU, MIB, SHARED, amd, card, held, process, use

NOW = Clock(boot=500.0, unix=1_800_000_000.0)


def rows(known: Known) -> list[dict[str, Any]]:
    """Read the devices of the page."""
    found: list[dict[str, Any]] = json.loads(who_page(known, NOW))["devices"]
    return found


def test_a_device_is_named_with_its_container_its_time_and_its_use() -> None:
    """Of a whole card all that is used of it, of a share what the processes of its pod use."""
    given = {(GPU, "GPU-1"): Allocation(identity=("x",), at=440.0), (SHARED, "GPU-0::0"): Allocation(identity=("x",))}
    said = use(card(0, process("a", 300 * MIB, 20)), card(1))
    shown = rows(Known([held("GPU-0::0", "a"), held("GPU-0::1", "b"), held("GPU-1", "c", "train")], said, given))
    assert [(one["device"], one["pod"], one["since"], one["memoryBytes"], one["busyPercent"]) for one in shown] == [
        ("GPU-0::0", "a", None, 300 * MIB, 20),
        ("GPU-0::1", "b", None, 0, 0),
        ("GPU-1", "c", NOW.unix - 60, 1000 * MIB, 50),
    ]
    assert shown[2] | {"device": "", "pod": "", "since": 0, "memoryBytes": 0, "busyPercent": 0} == {
        "device": "", "resource": GPU, "namespace": "default", "pod": "", "container": "train", "since": 0,
        "memoryBytes": 0, "busyPercent": 0,
    }  # fmt: skip


def test_a_device_of_several_cards_uses_them_together() -> None:
    """Their memory in all, and the mean of their time."""
    pci = {"0000:03:00.0", "0000:04:00.0"}
    (row,) = rows(Known([held("dri-0", "a", resource="example.com/gpu", pci=pci)], use(amd(0), amd(1))))
    assert (row["memoryBytes"], row["busyPercent"]) == (2000 * MIB, 50)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(Known([held("GPU-0", "a")]), id="no use"),
        pytest.param(Known([held("GPU-0", "a")], use(card(values={}))), id="a card that knows nothing"),
        pytest.param(Known([held("GPU-9", "a")], use(card())), id="a card that is not there"),
        pytest.param(Known([held("GPU-0::0", "a")], use(card(), pods=None)), id="processes are not known"),
        pytest.param(Known([held("edu0-1f0c2a9b", "a")], use(card())), id="no card at all"),
    ],
)
def test_what_is_not_known_is_null(known: Known) -> None:
    """And not 0."""
    (row,) = rows(known)
    assert (row["memoryBytes"], row["busyPercent"], row["since"]) == (None, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0.4, "0s"), (59, "59s"), (60, "1m"), (61, "1m1s"), (3600, "1h"), (3605, "1h"), (11100, "3h5m"),
     (86400, "1d"), (180000, "2d2h")],
)  # fmt: skip
def test_an_age_is_written_as_kubectl_does(seconds: float, text: str) -> None:
    """The two largest units."""
    assert age(seconds) == text


@contextmanager
def agent(folder: Path, answer: bytes) -> Iterator[dict[str, str]]:
    """Answer one request as an agent; gives the environment in which it is found."""
    path = str(folder / "pages.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield {"DEVICE_AGENT_SOCKET": path}
        thread.join()


PAGE = who_page(
    Known(
        [held("GPU-1", "c", "train"), held("GPU-0::0", "b")],
        use(card(1)),
        {(GPU, "GPU-1"): Allocation(identity=("x",), at=440.0)},
        ("it is not known how much each pod uses: no hostPID",),
    ),
    NOW,
)
OK = b"HTTP/1.0 200 OK\r\n\r\n"


def test_the_table_reads_as_kubectls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not known is a hyphen there; what else is wrong stands on stderr."""
    with agent(tmp_path, OK + PAGE.encode()) as environment:
        assert run(["who"], environment) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "DEVICE     RESOURCE                NAMESPACE   POD   CONTAINER   AGE   MEMORY   BUSY",
        "GPU-1      nvidia.com/gpu          default     c     train       1m    1000Mi   50%",
        "GPU-0::0   nvidia.com/gpu.shared   default     b     main        -     -        -",
    ]
    assert printed.err == "device-agent: it is not known how much each pod uses: no hostPID\n"


def test_programs_get_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the agent says it."""
    with agent(tmp_path, OK + PAGE.encode()) as environment:
        assert run(["who", "-o", "json"], environment) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(PAGE)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b"HTTP/1.0 404 Not Found\r\n\r\navailable", "the exporter is off: set exporter.enabled", id="off"),
        pytest.param(OK + who_page(Known(None, problems=("the kubelet is away",)), NOW).encode(), "the kubelet is away",
                     id="podresources away"),
        pytest.param(OK + b"[]", "the agent's answer cannot be read", id="nonsense"),
        pytest.param(OK + b'{"devices": [{}], "now": 1}', "the agent's answer cannot be read", id="half an answer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_cannot_be_shown_is_exit_status_1(
    answer: bytes, message: str, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to do, and nothing that a program would take for an answer."""
    with agent(tmp_path, answer) as environment:
        assert run(["who", "-o", output], environment) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_without_an_agent_the_exit_status_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says where it was looked for."""
    assert run(["who"], {"DEVICE_AGENT_SOCKET": str(tmp_path / "none.sock")}) == 1
    assert "no agent answers at" in capsys.readouterr().err
