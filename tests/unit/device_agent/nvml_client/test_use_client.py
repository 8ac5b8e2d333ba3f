"""Use is followed: whose, over restarts of the container ``nvml``, and whatever is said."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import LONGEST_USE
from device_agent.nvml_client.lines import Pauses
from device_agent.nvml_client.use_client import UseClient
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.nvml_stand_in import REFUSAL, Nvml
from tests.unit.device_agent.usage.examples import card, use

PATIENT = Pauses(silence=SECONDS, first_delay=0.01, longest_delay=0.05)
A = ("default/a",)


def follow(folder: Path, act: Callable[[Nvml, UseClient], Awaitable[None]]) -> None:
    """Follow a container that is there, and act."""

    async def work() -> None:
        nvml = Nvml(folder)
        await nvml.start()
        client = UseClient(nvml.path, PATIENT)
        try:
            async with asyncio.timeout(SECONDS):
                await act(nvml, client)
                client.check()
        finally:
            await client.close()
            await nvml.stop()

    asyncio.run(work())


async def hears(client: UseClient, expected: Use) -> None:
    """Wait until this was said."""
    while client.use != expected:
        await asyncio.sleep(0.01)


def test_use_is_heard_as_soon_as_it_is_said(tmp_path: Path) -> None:
    """The last one counts."""

    async def act(nvml: Nvml, client: UseClient) -> None:
        assert await nvml.pods.get() is None
        assert client.use is None
        for said in (use(card(0), pods=None), use(card(1), pods=None)):
            nvml.use(said)
            await hears(client, said)

    follow(tmp_path, act)


def test_pods_are_asked_for_when_they_change_and_after_a_restart(tmp_path: Path) -> None:
    """None at first, and each list once; a container that starts anew knows of none."""

    async def act(nvml: Nvml, client: UseClient) -> None:
        assert await nvml.pods.get() is None
        for pods in (A, A, (*A, "default/b"), None):
            client.ask(pods)
        assert [await nvml.pods.get() for _ in range(3)] == [A, (*A, "default/b"), None]
        client.ask(A)
        assert await nvml.pods.get() == A
        await nvml.stop()
        await nvml.start()
        assert await nvml.pods.get() == A
        assert nvml.pods.empty()

    follow(tmp_path, act)


def test_a_request_without_a_connection_is_not_sent(tmp_path: Path) -> None:
    """Whoever asks hears of it: what became of it would never be said."""
    request = EndRequest("GPU-0", "a" * 32, 7, 8, 9.5)

    async def act(nvml: Nvml, client: UseClient) -> None:
        assert not client.end(request)
        assert await nvml.pods.get() is None
        assert client.end(request)
        assert await nvml.ends.get() == request
        await nvml.stop()
        while client.end(request):
            await asyncio.sleep(0.01)

    follow(tmp_path, act)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(REFUSAL, "answered with an error: there are 8 clients already", id="refused"),
        pytest.param(b"{}", "said what is no state: the version is not 1", id="nonsense"),
        pytest.param(b"x" * (LONGEST_USE + 100), "said a line of more than", id="too long"),
    ],
)
def test_what_is_no_use_is_logged_and_use_is_followed_anew(
    line: bytes, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was said before stays: it is old soon enough."""

    async def act(nvml: Nvml, client: UseClient) -> None:
        said = use(card())
        nvml.use(said)
        await hears(client, said)
        nvml.say_use(line)
        while words not in caplog.text:
            await asyncio.sleep(0.01)
        assert client.use == said
        later = said._replace(at=200.0)
        nvml.use(later)
        await hears(client, later)

    with caplog.at_level(logging.INFO):
        follow(tmp_path, act)
    assert caplog.text.count(words) == 1
    assert "the container nvml answers" in caplog.text


def test_why_processes_are_not_known_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An admin can give the pod what it lacks only by its manifest."""

    async def act(nvml: Nvml, client: UseClient) -> None:
        for at in (1.0, 2.0, 3.0):
            said = use(card(), processes="the pod has no hostPID", at=at)
            nvml.use(said)
            await hears(client, said)

    follow(tmp_path, act)
    assert caplog.text.count("no process can be said to be of a pod: the pod has no hostPID") == 1
