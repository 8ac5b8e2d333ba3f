"""A whole agent that shares a resource of the node's files by a profile, between a kubelet and its pods."""

from pathlib import Path

import pytest
from grpclib.exceptions import GRPCError

from device_agent.profiles.verdict import Verdict
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    DevicePluginOptions,
)
from tests.unit.device_agent.nvidia.life import Life, play
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import state
from tests.unit.device_agent.nvidia.test_profiles_in_use import Node, mount, shared

CARD, SHARED, GPU = "example.com/card", "example.com/card.shared", "nvidia.com/gpu"
CONFIG = f"resources:\n- name: {CARD}\n  groups: [{{paths: [{{path: /run/card*, type: Mount}}]}}]\n"
WHOLE = "version: v1\n"
SHARES = f"""\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{{name: {CARD}, replicas: 4}}]
"""


async def allocate(life: Life, resource: str, *ids: str) -> AllocateResponse:
    """Ask for devices for one container."""
    request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=ids),))
    answer = await life.kubelet.ask(life.kubelet.plugins[resource], messages.ALLOCATE, request, AllocateResponse)
    assert isinstance(answer, AllocateResponse)
    return answer


def test_a_resource_is_shared_while_containers_run(tmp_path: Path) -> None:
    """What one has stays its own, also over a restart; a share brings the device's files, one to a container."""
    pods = Pods(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("card0", "card1"):
        (tmp_path / "run" / name).touch()
    mount(tmp_path / "profiles", WHOLE)

    async def change(life: Life) -> None:
        await pods.start()
        await life.kubelet.until_shown({CARD: (2, 2)})
        registered = life.kubelet.plugins[CARD]
        assert registered.options == DevicePluginOptions(get_preferred_allocation_available=True)
        held = sorted(life.kubelet.shown[CARD])[0]
        await allocate(life, CARD, held)
        pods.run(CARD, held)
        mount(tmp_path / "profiles", SHARES)
        await life.kubelet.until_shown({CARD: (1, 1), SHARED: (4, 8)})
        await pods.stop()

    async def restart(life: Life) -> None:
        await pods.start()
        await life.kubelet.until_shown({CARD: (1, 1), SHARED: (4, 8)})
        (held,) = life.kubelet.shown[CARD]
        free = [name for name in sorted(life.kubelet.shown[SHARED]) if not name.startswith(held)]
        with pytest.raises(GRPCError, match="maximum request size for shared resources is 1"):
            await allocate(life, SHARED, *free[:2])
        answer = await allocate(life, SHARED, free[0])
        assert [mount.container_path for mount in answer.containers[0].mounts] == ["/run/card1"]
        pods.end(CARD, held)
        await life.kubelet.until_shown({SHARED: (8, 8)})
        await pods.stop()

    play(tmp_path, change, CONFIG, shared(tmp_path))
    play(tmp_path, restart, CONFIG, shared(tmp_path))
    assert (tmp_path / "state/files/allocations.json").exists()
    assert not (tmp_path / "state/allocations.json").exists()


def test_files_follow_the_profile_that_is_in_force_for_gpus(tmp_path: Path) -> None:
    """One that the GPUs refuse changes neither; an agent that starts again goes on with both."""
    both = SHARES.replace("resources: [", "resources: [{name: nvidia.com/gpu, replicas: 2}, ")
    pods = Pods(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/card0").touch()
    mount(tmp_path / "profiles", WHOLE)

    async def act(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state())
        await life.kubelet.until_shown({CARD: (1, 1), GPU: (4, 4)})
        mount(tmp_path / "profiles", both)
        await life.kubelet.until_shown({SHARED: (4, 4), f"{GPU}.shared": (8, 8)})
        await pods.stop()

    async def again(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state())
        await life.kubelet.until_shown({SHARED: (4, 4), f"{GPU}.shared": (8, 8)})
        await pods.stop()

    play(tmp_path, act, f"nvidia: {{}}\n{CONFIG}", shared(tmp_path))
    play(tmp_path, again, f"nvidia: {{}}\n{CONFIG}", shared(tmp_path))


def test_a_profile_that_the_files_refuse_is_counted_as_one(tmp_path: Path) -> None:
    """As the Node's answer says, though the GPUs have taken it."""
    port = "- name: example.com/port\n  groups: [{paths: [{path: /run/card*, type: Mount}]}]\n"
    pods = Pods(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/card0").touch()
    mount(tmp_path / "profiles", SHARES.replace("name:", "rename: example.com/port, name:"))

    async def act(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state())
        await life.kubelet.until_shown({CARD: (1, 1), "example.com/port": (1, 1), GPU: (4, 4)})
        await Node(life, pods).metric("device_agent_profile_current 0")
        await pods.stop()

    play(tmp_path, act, f"nvidia: {{}}\n{CONFIG}{port}", shared(tmp_path))


@pytest.mark.parametrize(
    ("gpus", "files", "expected"),
    [
        pytest.param(Verdict(asked="a", applied="a", resources=("x",)), Verdict(asked="a", resources=("y",)),
                     ("", ("x", "y"), False), id="both well"),
        pytest.param(Verdict(asked="a", applied="a", message="m"), Verdict(asked="a", message="n", has_failed=True),
                     ("m; n", (), True), id="files refuse it"),
        pytest.param(Verdict(asked="b", applied="a", message="m", has_failed=True), Verdict(asked="a", message="m"),
                     ("m", (), True), id="GPUs refuse it"),
        pytest.param(Verdict(asked="b", applied="b"), Verdict(asked="a", message="n", has_failed=True),
                     ("", (), False), id="files are still at the one before"),
    ],
)  # fmt: skip
def test_one_answer_is_made_of_both(gpus: Verdict, files: Verdict, expected: tuple[str, tuple[str, ...], bool]) -> None:
    """For the Node, which has one profile."""
    found = gpus.beside(files)
    assert (found.message, found.resources, found.has_failed) == expected
    assert (found.asked, found.applied) == (gpus.asked, gpus.applied)
