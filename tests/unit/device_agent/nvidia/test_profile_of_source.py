"""The source with profiles: which one counts, what became of it, and what it says beside the configuration."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.allocations.remembered import Allocations
from device_agent.config.config_file import Description
from device_agent.config.options import Settings, build_settings
from device_agent.devices.model import Policy, Traits
from device_agent.errors import ConfigurationError
from device_agent.profiles.current import Current, ProfileFolder
from device_agent.profiles.verdict import Verdict
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.memory_file import write_memory
from device_agent.sources.nvidia.nvidia_source import NvidiaSource
from device_resources.nvidia import AllocationPolicy, NvidiaSettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.states import split, state, xid

GPU, SHARED, INSTANCE = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
DISTRIBUTED = NvidiaSettings(policy=AllocationPolicy.DISTRIBUTED)
PROFILES = {
    "default": "version: v1\n",
    "slice-4": """\
version: v1
flags: {plugin: {sharedDevicesAllocationPolicy: packed}}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
""",
    "mixed": "version: v1\nflags: {migStrategy: mixed}\n",
    "of-another-node": """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: ["7"]}]
""",
}

PATIENT = Timing(first_state=SECONDS, moment=SECONDS, slow=2 * SECONDS)


@pytest.fixture
def settings(folder: Path) -> Settings:
    """Make a node with profiles."""
    (folder / "profiles").mkdir()
    for key, text in PROFILES.items():
        (folder / "profiles" / key).write_text(text)
    return Settings(
        root=str(folder),
        state_dir=str(folder / "state"),
        nvml_socket=str(folder / "nvml.sock"),
        report_dir=str(folder),
        profiles=str(folder / "profiles"),
        plugin_dir=str(folder / "plugins"),
        pod_resources=str(folder / "pods.sock"),
    )


def looked(
    settings: Settings, *asked: str | None, given: Allocations | None = None, is_split: bool = False
) -> NvidiaSource:
    """Return a source that has looked after each of these was asked for."""

    async def work() -> NvidiaSource:
        nvml = Nvml(Path(settings.nvml_socket).parent)
        source = NvidiaSource(settings, PATIENT._replace(users=3600.0), write=None, given=given)
        source.start(lambda: None)
        await nvml.start(state(split(0, "1g.5gb", "1g.5gb")) if is_split else state())
        source.configure(Description(nvidia=DISTRIBUTED))
        for key in asked:
            source.ask(key)
            await source.look()
        await source.close()
        await nvml.stop()
        return source

    return asyncio.run(work())


def units(source: NvidiaSource) -> dict[str, list[tuple[str, int]]]:
    """Return units and their shares by resource."""
    return {name: [(unit.id, unit.shares) for unit in found or ()] for name, found in source.resources.items()}


@pytest.mark.parametrize(
    ("asked", "default", "resource", "verdict"),
    [
        pytest.param((None,), "", GPU, ("default", "default", "", False), id="nothing is asked for"),
        pytest.param((None,), "slice-4", SHARED, ("slice-4", "slice-4", "", False), id="--default-profile"),
        pytest.param(("slice-4",), "", SHARED, ("slice-4", "slice-4", "", False), id="a key"),
        pytest.param(("slice-4", ""), "", GPU, ("default", "default", "", False), id="no longer"),
        pytest.param(("x",), "", GPU, ("x", "", "there is no profile x", True), id="none of that key, at the start"),
        pytest.param(
            ("slice-4", "x"), "", SHARED, ("x", "slice-4", "there is no profile x", True), id="none of that key"
        ),
        pytest.param(
            ("slice-4", "of-another-node"),
            "",
            SHARED,
            ("of-another-node", "slice-4", "does not fit this node: ", True),
            id="of other GPUs",
        ),
    ],
)
def test_what_is_asked_for_is_answered(
    settings: Settings,
    asked: tuple[str | None, ...],
    default: str,
    resource: str,
    verdict: tuple[str, str, str, bool],
) -> None:
    """With the key that counts, the one in force, and why they differ."""
    source = looked(settings._replace(default_profile=default), *asked)
    found = source.verdict
    assert found is not None
    assert verdict[2] in found.message
    assert bool(verdict[2]) is bool(found.message)
    expected = Verdict(
        asked=verdict[0],
        applied=verdict[1],
        message=found.message,
        resources=(resource,),
        has_failed=verdict[3],
    )
    assert found == expected
    assert units(source) == {resource: [(f"GPU-{number}", 4 if resource == SHARED else 1) for number in range(4)]}


def test_what_a_profile_says_counts_more_than_the_configuration(settings: Settings) -> None:
    """Its policy, its strategy for MIG, and that a container gets one share."""
    checked = Traits(is_checked=True, beside=(GPU,))
    assert looked(settings, None).traits(GPU) == checked
    expected = Traits(policy=Policy.PACKED, is_checked=True, one_share=True, beside=(GPU,))
    assert looked(settings, "slice-4").traits(SHARED) == expected
    assert units(looked(settings, None, is_split=True)) == {GPU: [("GPU-0", 1)]}
    assert units(looked(settings, "mixed", is_split=True)) == {INSTANCE: [("MIG-0-1", 1), ("MIG-0-2", 1)]}


def test_what_was_given_before_stays_while_nobody_says_who_has_devices(settings: Settings, folder: Path) -> None:
    """The other GPUs are offered as the profile says."""
    given = Allocations(str(folder / "state"))
    given.load()
    given.remember(GPU, {"GPU-0": ("/dev/nvidia0 195:0",)})
    source = looked(settings, "slice-4", "slice-4", given=given)
    assert units(source) == {GPU: [("GPU-0", 1)], SHARED: [("GPU-1", 4), ("GPU-2", 4), ("GPU-3", 4)]}
    assert source.verdict is not None
    assert "it is not known which devices are in use" in source.verdict.message


def test_what_was_given_cannot_be_read(settings: Settings, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is offered: it is not known what is in use."""
    (folder / "state/allocations.json").mkdir(parents=True)
    source = looked(settings, "slice-4", given=Allocations(str(folder / "state")))
    assert source.resources == {}
    assert "cannot read what was given" in caplog.text


class Folder(ProfileFolder):
    """Profiles on a disk that answers only while ``answers`` is set."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.answers = threading.Event()
        self.answers.set()

    def read(self, asked: str, before: str = "") -> Current:
        """Wait for the disk, then read."""
        self.answers.wait(4 * SECONDS)
        return super().read(asked, before)


def follow(
    settings: Settings,
    act: Callable[[NvidiaSource, Nvml], Awaitable[None]],
    timing: Timing,
    folder: ProfileFolder | None = None,
    given: Allocations | None = None,
) -> None:
    """Act on a source whose container is there."""

    async def work() -> None:
        nvml = Nvml(Path(settings.nvml_socket).parent)
        source = NvidiaSource(settings, timing, write=write_memory, folder=folder, given=given)
        source.start(lambda: None)
        await nvml.start(state())
        source.configure(Description(nvidia=DISTRIBUTED))
        async with asyncio.timeout(2 * SECONDS):
            await act(source, nvml)
        await source.close()
        await nvml.stop()

    asyncio.run(work())


def whys(source: NvidiaSource) -> dict[str, str]:
    """Return what is wrong with each GPU."""
    return {unit.id: unit.why for found in source.resources.values() for unit in found or ()}


async def until_applied(source: NvidiaSource, key: str) -> None:
    """Look until this is in force, and is what is asked for."""
    while not source.answer or source.answer.has_failed or source.answer.applied != key:
        await source.look()
        await asyncio.sleep(0)


async def see_xid(source: NvidiaSource, nvml: Nvml, of: int, at: float) -> None:
    """Have an Xid, and look until it is seen."""
    nvml.show(state(at=at, xids=(xid(1, 79, of=of),)))
    while "Xid 79" not in whys(source).get(f"GPU-{of}", ""):
        await source.look()
        await asyncio.sleep(0)


@pytest.mark.parametrize("slow", [0.05, 3600.0], ids=["for long", "for a moment"])
def test_profiles_on_a_disk_that_does_not_answer_hold_no_health_back(settings: Settings, slow: float) -> None:
    """The last good one stays; nothing is answered about another one until it was read, or has failed to be."""
    folder = Folder(settings.profiles)

    async def act(source: NvidiaSource, nvml: Nvml) -> None:
        source.ask("slice-4")
        await until_applied(source, "slice-4")
        assert source.answer == Verdict(asked="slice-4", applied="slice-4", resources=(SHARED,))
        folder.answers.clear()
        source.ask("mixed")
        await see_xid(source, nvml, of=2, at=110.0)
        assert units(source) == {SHARED: [(f"GPU-{number}", 4) for number in range(4)]}
        if slow > 1:
            assert source.answer is None
        else:
            while not source.answer:
                await source.look()
                await asyncio.sleep(0)
            why = f"cannot read the profiles in {settings.profiles}: no answer for 0.05 s"
            expected = Verdict(asked="mixed", applied="slice-4", message=why, resources=(SHARED,), has_failed=True)
            assert source.answer == expected
        folder.answers.set()
        await until_applied(source, "mixed")
        assert units(source) == {GPU: [(f"GPU-{number}", 1) for number in range(4)]}

    follow(settings, act, Timing(first_state=SECONDS, moment=0.01, slow=slow), folder)


def test_profiles_that_were_never_read_offer_nothing_yet(settings: Settings) -> None:
    """Not even an empty list: which resources there will be is not known."""
    folder = Folder(settings.profiles)
    folder.answers.clear()

    async def act(source: NvidiaSource, _: Nvml) -> None:
        await source.look()
        assert (source.resources, source.answer) == ({}, None)
        folder.answers.set()
        await until_applied(source, "default")
        assert units(source) == {GPU: [(f"GPU-{number}", 1) for number in range(4)]}

    follow(settings, act, Timing(first_state=SECONDS, moment=0.01, slow=3600.0), folder)


def test_what_was_ever_given_is_not_offered_before_a_profile_was_read(settings: Settings, folder: Path) -> None:
    """A GPU may have been given whole once, and one of its instances later, which a container still has."""
    given = Allocations(str(folder / "state"))
    given.remember(GPU, {"GPU-0": ("/dev/nvidia0 195:0",)})
    given.remember(INSTANCE, {"MIG-0-1": ("/dev/nvidia0 195:0",)})
    disk = Folder(settings.profiles)
    disk.answers.clear()

    async def act(source: NvidiaSource, nvml: Nvml) -> None:
        nvml.show(state(split(0, "1g.5gb", "1g.5gb")))
        await source.look()
        assert source.resources == {}
        disk.answers.set()
        while not source.resources:
            await source.look()
        assert all(whys(source).values())

    follow(settings, act, Timing(first_state=SECONDS, moment=0.01, slow=3600.0), disk, given)


def test_until_the_node_was_read_what_was_in_force_counts(settings: Settings) -> None:
    """Of an agent before; nothing is answered meanwhile. One that knows of none waits a while for the Node."""

    async def first(source: NvidiaSource, _: Nvml) -> None:
        source.expect()
        await source.look()
        assert units(source).keys() == {GPU}
        assert source.answer is None
        source.ask("slice-4")
        await source.look()
        assert source.answer == Verdict(asked="slice-4", applied="slice-4", resources=(SHARED,))

    async def second(source: NvidiaSource, _: Nvml) -> None:
        source.expect()
        await source.look()
        assert units(source).keys() == {SHARED}
        assert source.answer is None
        source.ask(None)
        await source.look()
        assert source.answer == Verdict(asked="default", applied="default", resources=(GPU,))

    follow(settings, first, PATIENT._replace(first_ask=0.0))
    follow(settings, second, PATIENT._replace(first_ask=3600.0))


def test_what_the_files_follow_is_kept_where_no_gpu_is_known(settings: Settings) -> None:
    """So that an agent that starts without an API server rearranges no other devices either."""

    async def first(source: NvidiaSource, nvml: Nvml) -> None:
        await nvml.stop()
        source.expect()
        source.ask("slice-4")
        await source.look()
        assert source.answer is not None
        assert (source.answer.asked, source.answer.applied) == ("slice-4", "")

    async def second(source: NvidiaSource, nvml: Nvml) -> None:
        await nvml.stop()
        source.expect()
        await source.look()
        assert (source.answer, source.verdict and source.verdict.asked) == (None, "slice-4")

    for act in (first, second):
        follow(settings, act, PATIENT._replace(first_state=0.0, first_ask=0.0))


def test_the_first_look_waits_for_what_the_node_asks_for(settings: Settings) -> None:
    """So that no GPU is offered by the default profile a moment before its label is known."""

    async def act(source: NvidiaSource, _: Nvml) -> None:
        source.expect()
        look = asyncio.create_task(source.look())
        await asyncio.sleep(0.01)
        source.ask("slice-4")
        await look
        assert units(source).keys() == {SHARED}

    follow(settings, act, PATIENT._replace(first_ask=3600.0))


def test_without_profiles_there_is_no_verdict(settings: Settings) -> None:
    """And nothing is watched."""
    source = looked(settings._replace(profiles=""), None)
    assert (source.verdict, source.answer, source.places()) == (None, None, ())


def test_without_profiles_nothing_of_them_is_loaded() -> None:
    """The resident process of a node with GPUs stays as small as it was."""
    program = "import sys, device_agent.sources.nvidia.nvidia_source; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.split()
    own = ("device_agent.users", "device_agent.profiles.transition", "device_agent.profiles.parse",
           "device_agent.profiles.current", "device_agent.profiles.report", "device_resources.gpu_sharing")  # fmt: skip
    assert [name for name in loaded if name.startswith(own) or name == "device_agent.sources.sharing"] == []


def test_a_default_profile_needs_profiles() -> None:
    """It would change nothing, and nobody would know."""
    with pytest.raises(ConfigurationError, match="--profiles, which is not given"):
        build_settings({"default-profile": "slice-4"}, {"DEVICE_AGENT_PROFILES": ""})
