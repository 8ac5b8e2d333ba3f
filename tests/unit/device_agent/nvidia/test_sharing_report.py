"""The file from which nfd-worker labels how GPUs are shared: when it is written, and when it stays."""

import asyncio
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.config.config_file import Description
from device_agent.config.options import DEFAULT_REPORT_DIR, Settings
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.nvidia_source import NvidiaSource
from device_agent.sources.nvidia.sharing_report import NAME, SharingReport, write_report
from device_resources.gpu_sharing import FILE, GpuSharing, SharedResource, parse_sharing
from device_resources.nvidia import MigStrategy, NvidiaSettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.states import state

GPU = "nvidia.com/gpu"
PLAIN = Description(nvidia=NvidiaSettings(mig_strategy=MigStrategy.MIXED))
PROFILES = {
    "default": "version: v1\n",
    "slice-4": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
    "broken": "version: v1\nsharing: {}\nsharin: {}\n",
}
WHOLE = GpuSharing("mixed", {GPU: SharedResource()})
SHARED = GpuSharing("mixed", {GPU: SharedResource(4, "time-slicing")})


@pytest.fixture
def settings(folder: Path) -> Settings:
    """Make a node with profiles, and a folder for the report."""
    for name in ("profiles", "run"):
        (folder / name).mkdir()
    for key, text in PROFILES.items():
        (folder / "profiles" / key).write_text(text)
    return Settings(
        root=str(folder),
        state_dir=str(folder / "state"),
        nvml_socket=str(folder / "nvml.sock"),
        profiles=str(folder / "profiles"),
        report_dir=str(folder / "run"),
        pod_resources=str(folder / "pods.sock"),
    )


class Node:
    """A source at work. ``reported``: what nfd-worker reads; None if there is no file."""

    def __init__(self, source: NvidiaSource, settings: Settings) -> None:
        self.source = source
        self._path = Path(settings.report_dir) / NAME

    @property
    def reported(self) -> GpuSharing | None:
        """Read the file as the worker does."""
        return parse_sharing(self._path.read_bytes()) if self._path.exists() else None

    async def looks(self, asked: str = "") -> GpuSharing | None:
        """Look, with this profile; returns what is reported then."""
        self.source.ask(asked)
        await self.source.look()
        return self.reported


def written(path: Path) -> tuple[int, int]:
    """Which file it is, and when it was written; when it was read last is left out: a read may change that."""
    found = path.lstat()
    return found.st_ino, found.st_mtime_ns


def play(settings: Settings, act: Callable[[Node], Awaitable[None]], *, has_nvml: bool = True) -> None:
    """Run a source, act, and end it."""

    async def work() -> None:
        nvml = Nvml(Path(settings.nvml_socket).parent)
        source = NvidiaSource(settings, Timing(first_state=SECONDS if has_nvml else 0.01, users=3600.0, moment=SECONDS))
        source.start(lambda: None)
        if has_nvml:
            await nvml.start(state())
        source.configure(PLAIN)
        try:
            await act(Node(source, settings))
        finally:
            await source.close()
            await nvml.stop()

    asyncio.run(work())


def test_the_file_is_the_one_that_the_worker_reads() -> None:
    """In the folder that is the default."""
    assert f"{DEFAULT_REPORT_DIR}/{NAME}" == FILE


def test_the_file_follows_the_profile_in_force(settings: Settings) -> None:
    """One that is refused is not in force."""

    async def act(node: Node) -> None:
        assert await node.looks() == WHOLE
        assert await node.looks("slice-4") == SHARED
        assert await node.looks("broken") == SHARED
        assert await node.looks("nobody-has-it") == SHARED
        assert await node.looks() == WHOLE

    play(settings, act)


def test_labels_do_not_come_and_go_with_an_agent(settings: Settings) -> None:
    """The file stays when it ends, and while the next one does not know its GPUs; then it is not written anew."""
    path = Path(settings.report_dir) / NAME
    settings = settings._replace(default_profile="slice-4", state_dir=f"{settings.state_dir}-1")

    async def shares(node: Node) -> None:
        assert await node.looks() == SHARED

    async def waits(node: Node) -> None:
        assert await node.looks() == SHARED

    play(settings, shares)
    before = written(path)
    play(settings._replace(state_dir=f"{settings.state_dir}-2"), waits, has_nvml=False)
    play(settings, shares)
    assert written(path) == before


def test_without_profiles_what_an_earlier_agent_said_is_removed(settings: Settings) -> None:
    """Nothing is shared any more, and nothing is reported."""
    path = Path(settings.report_dir) / NAME
    path.write_text("{}")

    async def act(node: Node) -> None:
        assert await node.looks() is None

    play(settings._replace(profiles=""), act)


def test_a_report_without_a_folder_touches_nothing(settings: Settings) -> None:
    """As of an agent that is asked for none."""
    path = Path(settings.report_dir) / NAME
    path.write_text("{}")

    async def act(node: Node) -> None:
        await node.looks("slice-4")

    play(settings._replace(report_dir=""), act)
    assert path.read_text() == "{}"


def test_gpus_that_are_described_no_more_are_not_reported(settings: Settings) -> None:
    """And again when they are."""

    async def act(node: Node) -> None:
        assert await node.looks("slice-4") == SHARED
        node.source.configure(Description())
        assert await node.looks("slice-4") is None
        node.source.configure(PLAIN)
        assert await node.looks("slice-4") == SHARED

    play(settings, act)


def test_a_folder_that_is_missing_is_logged_once_and_tried_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """GPUs are offered all the same. It is not made: a worker would look for it elsewhere."""
    folder = Path(settings.report_dir)
    folder.rmdir()

    async def act(node: Node) -> None:
        for _ in range(3):
            assert await node.looks("slice-4") is None
        assert [unit.shares for unit in node.source.resources[GPU] or ()] == [4, 4, 4, 4]
        assert not folder.exists()
        folder.mkdir()
        assert await node.looks("slice-4") == SHARED

    play(settings, act)
    assert caplog.text.count(f"cannot write {folder}/{NAME}: No such file or directory; the node's labels") == 1


def test_a_folder_that_does_not_answer_holds_up_nobody(folder: Path) -> None:
    """The log says so; it has the newest content at the first look after it answers."""
    answers = threading.Event()
    written: list[bytes] = []
    said: dict[str, str] = {}

    def write(_folder: str, content: bytes) -> str:
        answers.wait(4 * SECONDS)
        written.append(content)
        return "it is full" if content == b"1" else ""

    async def act() -> None:
        report = SharingReport(str(folder), said.__setitem__, write, moment=0.01, slow=0.0)
        async with asyncio.timeout(SECONDS):
            for content in (b"1", b"2", b"3"):
                await report.keep(content)
            assert written == []
            assert said["report"].startswith(f"cannot write {folder}/{NAME}: no answer for 0 s; the node's labels")
            answers.set()
            while b"3" not in written:
                await asyncio.sleep(0.01)
                await report.keep(b"3")
            await report.keep(b"3")
            await report.close()

    asyncio.run(act())
    assert (written, said) == ([b"1", b"3"], {"report": ""})


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: None, id="nothing"),
        pytest.param(lambda path: path.write_text("{"), id="another text"),
        pytest.param(lambda path: path.write_bytes(b"x" * (1 << 20)), id="a long one"),
        pytest.param(os.mkfifo, id="a pipe"),
        pytest.param(lambda path: path.symlink_to("/proc/version"), id="a link"),
    ],
)
def test_what_is_in_its_place_is_replaced(folder: Path, make: Callable[[Path], None]) -> None:
    """By a file that everybody may read, whatever the umask, and that is whole."""
    path = folder / NAME
    make(path)
    before = os.umask(0o077)
    try:
        assert write_report(str(folder), b"{}\n") == ""
    finally:
        os.umask(before)
    found, first = path.lstat(), written(path)
    assert (stat.filemode(found.st_mode), path.read_bytes()) == ("-rw-r--r--", b"{}\n")
    assert [each.name for each in folder.iterdir()] == [NAME]
    assert write_report(str(folder), b"{}\n") == ""
    assert written(path) == first
    assert write_report(str(folder), b"") == write_report(str(folder), b"") == ""
    assert not path.exists()


def test_what_cannot_be_replaced_is_named(folder: Path) -> None:
    """With the reason."""
    (folder / NAME).mkdir()
    assert write_report(str(folder), b"{}\n") == f"cannot write {folder}/{NAME}: Is a directory"
    assert write_report(str(folder), b"").startswith(f"cannot write {folder}/{NAME}: ")
