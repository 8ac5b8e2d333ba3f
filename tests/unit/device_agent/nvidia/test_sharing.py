"""What is given while the list of the next profile is on its way to the kubelet."""

import asyncio
from pathlib import Path

import pytest

from device_agent.allocations.remembered import Allocations
from device_agent.profiles.current import Current
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.strategy import Sorted
from device_agent.profiles.transition import Listing
from device_agent.sources.sharing import Sharing
from device_agent.users.asking import Users
from device_agent.users.look import Places
from device_resources.nvidia import MigStrategy
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import state

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
WHOLE = Current("whole", parse_profile("version: v1\n", "whole"))
SHARES = Current(
    "shares",
    parse_profile(
        """\
version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
""",
        "shares",
    ),
)


def free(listing: Listing) -> dict[str, list[str]]:
    """Return the units that may be given, by resource."""
    found = {name: sorted({one.unit for one in devices if not one.why}) for name, devices in listing.items()}
    return {name: units for name, units in found.items() if units}


def test_what_is_given_while_its_way_ends_stays(folder: Path) -> None:
    """The kubelet had the list before: the GPU is not shared, and stays on the list for its container."""
    pods, given = Pods(folder), Allocations(str(folder / "state"))
    places = Places(socket=pods.path, plugins=str(folder / "plugins"), cgroups=str(folder / "sys/fs/cgroup"))
    users = Users(places, lambda: None, 3600.0)
    said: list[tuple[str, str]] = []
    sharing, cards = Sharing(users, given, lambda topic, what: said.append((topic, what))), Sorted(state().cards)

    async def step(current: Current) -> None:
        await users.look()
        sharing.advance(current, cards, MigStrategy.NONE)

    async def work() -> None:
        await pods.start()
        assert await sharing.begin()
        await step(WHOLE)
        assert free(sharing.listing) == {GPU: ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]}
        await step(SHARES)
        assert free(sharing.listing) == {}
        given.begin(GPU, {"GPU-0": 1})
        sharing.advance(SHARES, cards, MigStrategy.NONE)  # nobody has looked since
        assert free(sharing.listing) == {GPU: ["GPU-0"]}
        await step(SHARES)
        assert free(sharing.listing) == {GPU: ["GPU-0"], SHARED: ["GPU-1", "GPU-2", "GPU-3"]}
        assert sharing.verdict.message == "GPU-0 is still held as nvidia.com/gpu (1 device)"
        assert [line for line in said if line[1]] == []
        await sharing.close()
        await pods.stop()

    asyncio.run(work())


@pytest.mark.parametrize("is_described_anew", [True, False])
def test_what_another_plugin_gave_meanwhile_is_looked_at(folder: Path, *, is_described_anew: bool) -> None:
    """While it is there, and until somebody has looked after it has gone, no GPU may be given; then what is free."""
    pods, given = Pods(folder), Allocations(str(folder / "state"))
    places = Places(socket=pods.path, plugins=str(folder / "plugins"), cgroups=str(folder / "sys/fs/cgroup"))
    users = Users(places, lambda: None, 3600.0)
    sharing, cards = Sharing(users, given, lambda _topic, _what: None), Sorted(state().cards)

    def step() -> None:
        sharing.advance(SHARES, cards, MigStrategy.NONE)

    async def work() -> None:
        await pods.start()
        assert await sharing.begin()
        step()
        await users.look()
        step()
        assert free(sharing.listing) == {SHARED: ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]}
        early = asyncio.create_task(users.look())
        await asyncio.sleep(0)
        if is_described_anew:
            sharing.forget()
        else:
            assert sharing.beside(is_another=True)
            assert not sharing.beside(is_another=True)
            step()
            assert free(sharing.listing) == {}
            assert sharing.verdict.message.startswith("another plugin offers GPUs; ")
            assert sharing.beside(is_another=False)
        pods.run(GPU, "GPU-0")
        await early
        step()
        assert free(sharing.listing) == {}, "what was seen before it had gone counts for nothing"
        await users.look()
        step()
        assert free(sharing.listing) == {GPU: ["GPU-0"], SHARED: ["GPU-1", "GPU-2", "GPU-3"]}
        await sharing.close()
        await pods.stop()

    asyncio.run(work())


def test_what_was_given_has_to_be_read_first(folder: Path) -> None:
    """Until then the agent is not ready, and says which file cannot be read."""
    state_dir, pods = folder / "state", Pods(folder)
    state_dir.write_text("no folder")
    places = Places(socket=pods.path, plugins=str(folder / "plugins"), cgroups=str(folder / "sys/fs/cgroup"))
    sharing = Sharing(Users(places, lambda: None, 1.0), Allocations(str(state_dir)), lambda _topic, _what: None)
    assert not asyncio.run(sharing.begin())
    assert sharing.missing == f"cannot read what was given in {state_dir}/allocations.json: Not a directory"
    state_dir.unlink()
    assert asyncio.run(sharing.begin())
    assert sharing.missing == ""
