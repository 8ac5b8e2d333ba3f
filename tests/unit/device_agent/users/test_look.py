"""The kubelet is asked over a real socket: by either version, and whatever answers there is bounded."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from device_agent.errors import UsersUnknown
from device_agent.kubelet.channel import KubeletCodec
from device_agent.protocol.pod_resources import (
    LIST,
    LIST_ALPHA,
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)
from device_agent.users.in_use import Seen
from device_agent.users.look import Places, look_at_users
from device_agent.users.pod_resources import LONGEST, Holder, fetch_holders, parse_holders

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SECONDS = 60.0
UID = "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e"


def pod(name: str, *devices: tuple[str, tuple[str, ...]]) -> PodResources:
    """Make a pod whose one container has devices."""
    made = tuple(ContainerDevices(resource_name=resource, device_ids=ids) for resource, ids in devices)
    return PodResources(name=name, namespace="default", containers=(ContainerResources(name="c", devices=made),))


ANSWER = ListPodResourcesResponse(
    pod_resources=(
        pod("idle"),
        pod("train", (GPU, ("GPU-0", "GPU-1")), ("example.com/nic", ("eth1",))),
        pod("one", (SHARED, ("GPU-2::0",))),
        pod("two", (SHARED, ("GPU-2::1",))),
    )
)
HOLDERS = {
    (GPU, "GPU-0"): {Holder("default", "train", "c")},
    (GPU, "GPU-1"): {Holder("default", "train", "c")},
    ("example.com/nic", "eth1"): {Holder("default", "train", "c")},
    (SHARED, "GPU-2::0"): {Holder("default", "one", "c")},
    (SHARED, "GPU-2::1"): {Holder("default", "two", "c")},
}

Answer = Callable[[Stream[Any, Any]], Awaitable[None]]


class Lister:
    """Answers one method as the kubelet does, and says of the other one that there is none."""

    def __init__(self, method: str, answer: Answer) -> None:
        self._method = method
        self._answer = answer

    def __mapping__(self) -> dict[str, Handler]:
        """Name the method, as grpclib asks for it."""
        kinds = ListPodResourcesRequest, ListPodResourcesResponse
        others = dict.fromkeys((LIST, LIST_ALPHA), Handler(_has_none, Cardinality.UNARY_UNARY, *kinds))
        return {**others, self._method: Handler(self._answer, Cardinality.UNARY_UNARY, *kinds)}


async def _has_none(stream: Stream[Any, Any]) -> None:
    await stream.recv_message()
    raise GRPCError(Status.UNIMPLEMENTED, "unknown service")


@asynccontextmanager
async def kubelet(folder: Path, answer: Answer, method: str = LIST) -> AsyncIterator[str]:
    """Answer on a socket; gives its path."""
    path = str(folder / "pods.sock")
    server = Server([Lister(method, answer)], codec=KubeletCodec())
    await server.start(path=path)
    try:
        yield path
    finally:
        server.close()
        await server.wait_closed()


async def answers(stream: Stream[Any, Any]) -> None:
    """Answer as a kubelet with some pods."""
    assert await stream.recv_message() == ListPodResourcesRequest()
    await stream.send_message(ANSWER)


@pytest.mark.parametrize("method", [LIST, LIST_ALPHA])
def test_the_kubelet_says_who_has_which_device(tmp_path: Path, method: str) -> None:
    """By ``v1``, or by ``v1alpha1`` where that is all it has."""

    async def work() -> None:
        async with kubelet(tmp_path, answers, method) as path:
            assert await fetch_holders(path, SECONDS) == HOLDERS

    asyncio.run(work())


def test_an_answer_with_all_devices_of_a_node_is_read(tmp_path: Path) -> None:
    """It is longer than other answers may be, and shorter than what is read."""
    ids = [f"GPU-5a7d1e1c-8a2b-4f6a-9d53-{number:012x}::999" for number in range(4096)]
    many = ListPodResourcesResponse(pod_resources=tuple(pod("x" * 250, (SHARED, (name,))) for name in ids))

    async def answer(stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(many)

    async def work() -> None:
        async with kubelet(tmp_path, answer) as path:
            assert (await fetch_holders(path, SECONDS)).keys() == {(SHARED, name) for name in ids}

    asyncio.run(work())


async def _refuses(stream: Stream[Any, Any]) -> None:
    await stream.recv_message()
    raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit\n")


async def _hangs(stream: Stream[Any, Any]) -> None:
    await stream.recv_message()
    await asyncio.sleep(3600)


async def _ends(stream: Stream[Any, Any]) -> None:
    await stream.recv_message()
    await stream.cancel()


async def _is_long(stream: Stream[Any, Any]) -> None:
    await stream.recv_message()
    names = tuple("x" * 500 for _ in range(LONGEST // 500))
    await stream.send_message(ListPodResourcesResponse(pod_resources=(pod("a", (GPU, names)),)))


@pytest.mark.parametrize(
    ("answer", "seconds", "message"),
    [
        pytest.param(_refuses, SECONDS, "does not say on .* who has devices: rejected by rate limit$", id="refused"),
        pytest.param(_hangs, 0.2, "did not answer on .* in 0 s", id="no answer in time"),
        pytest.param(_ends, SECONDS, "cannot be asked on", id="the stream ends"),
        pytest.param(_is_long, SECONDS, "cannot be asked on .*: the answer is too long", id="a long answer"),
        pytest.param(_has_none, SECONDS, "does not say on .* who has devices: unknown service", id="neither version"),
    ],
)
def test_what_the_kubelet_does_not_say_is_not_known(
    tmp_path: Path, answer: Answer, seconds: float, message: str
) -> None:
    """The message has the socket and the reason."""

    async def work() -> None:
        async with kubelet(tmp_path, answer) as path:
            with pytest.raises(UsersUnknown, match=message):
                await fetch_holders(path, seconds)

    asyncio.run(work())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="another protocol"),
        pytest.param(b"\xff" * 70000, id="garbage"),
    ],
)
def test_whatever_answers_on_the_socket_is_no_answer(tmp_path: Path, content: bytes) -> None:
    """Only our own error comes out."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        writer.close()

    async def work() -> None:
        path = str(tmp_path / "pods.sock")
        async with await asyncio.start_unix_server(answer, path):
            with pytest.raises(UsersUnknown):
                await fetch_holders(path, 2.0)

    asyncio.run(work())


def test_a_kubelet_that_ends_while_it_is_asked_is_no_answer(tmp_path: Path) -> None:
    """At whatever moment: grpclib says so by an exception that a bug would have, if the first write fails."""

    async def ask(moments: int) -> None:
        path = str(tmp_path / f"{moments}.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            asking = asyncio.create_task(fetch_holders(path, SECONDS))
            for _ in range(moments):
                await asyncio.sleep(0)
        with pytest.raises(UsersUnknown, match="cannot be asked"):
            await asking

    async def work() -> None:
        for moments in range(20):
            await ask(moments)

    asyncio.run(work())


def test_without_a_kubelet_nothing_is_known(tmp_path: Path) -> None:
    """The message names the socket."""
    with pytest.raises(UsersUnknown, match=rf"cannot be asked on {tmp_path}/none.sock: .*No such file"):
        asyncio.run(fetch_holders(str(tmp_path / "none.sock"), SECONDS))


def test_names_that_no_device_has_are_left_out() -> None:
    """They could neither be compared nor shown."""
    odd = pod("a", ("", ("x",)), (GPU, ("", "\x1b[1m", "y" * 600, "GPU-0")))
    found = parse_holders(ListPodResourcesResponse(pod_resources=(odd,)))
    assert found == {(GPU, "GPU-0"): {Holder("default", "a", "c")}}


def test_the_containers_of_a_pod_are_told_apart() -> None:
    """Each has its own devices; a device that both have is of both."""
    made = (pod("a", (GPU, ("GPU-0", "GPU-1"))), pod("a", (GPU, ("GPU-1",))))
    first, second = (one.containers[0] for one in made)
    both = PodResources(name="a", namespace="b", containers=(first, replace(second, name="d")))
    assert parse_holders(ListPodResourcesResponse(pod_resources=(both,))) == {
        (GPU, "GPU-0"): {Holder("b", "a", "c")},
        (GPU, "GPU-1"): {Holder("b", "a", "c"), Holder("b", "a", "d")},
    }
    assert Holder("b", "a", "c").pod == "b/a"


def _node(folder: Path, *ids: str) -> Places:
    """Make a node with one pod that has devices."""
    entry = {"PodUID": UID, "ContainerName": "i", "ResourceName": GPU, "DeviceIDs": {"0": ids}, "AllocResp": ""}
    stale = {**entry, "PodUID": "gone", "DeviceIDs": {"0": ["GPU-9"]}}
    document = {"Data": {"PodDeviceEntries": [entry, stale], "RegisteredDevices": {}}, "Checksum": 0}
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps(document))
    (folder / "cgroup/kubepods" / f"pod{UID}").mkdir(parents=True)
    return Places(socket=str(folder / "pods.sock"), plugins=str(folder), cgroups=str(folder / "cgroup"))


@pytest.mark.parametrize(
    ("now", "recorded"),
    [
        pytest.param(1000.0, {(GPU, "GPU-5")}, id="pods that exist"),
        pytest.param(59.0, {(GPU, "GPU-5"), (GPU, "GPU-9")}, id="just after a boot all of them: cgroups come later"),
    ],
)
def test_all_is_read_at_once(tmp_path: Path, now: float, recorded: set[tuple[str, str]]) -> None:
    """What the kubelet shows, and what it recorded for pods that have a cgroup."""

    async def work() -> None:
        places = _node(tmp_path, "GPU-5")
        async with kubelet(tmp_path, answers):
            seen = await look_at_users(places, lambda: now)
        assert (seen.asked_at, set(seen.shown or ()), seen.recorded, seen.why) == (now, set(HOLDERS), recorded, "")

    asyncio.run(work())


def test_each_reason_is_named(tmp_path: Path) -> None:
    """Of the socket and of the checkpoint."""
    places = Places(socket=str(tmp_path / "none.sock"), plugins=str(tmp_path / "none"), cgroups=str(tmp_path))
    seen = asyncio.run(look_at_users(places, lambda: 1000.0))
    assert seen == Seen(asked_at=1000.0, why=seen.why)
    assert [part.partition(str(tmp_path))[0] for part in seen.why.split("; ")] == [
        "the kubelet cannot be asked on ", "cannot read ",
    ]  # fmt: skip
