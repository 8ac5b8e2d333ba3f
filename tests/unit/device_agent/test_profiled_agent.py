"""A whole agent that shares a resource of the node's files by a profile, between a kubelet and its pods."""

from pathlib import Path

import pytest
from grpclib.exceptions import GRPCError

from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    DevicePluginOptions,
)
from tests.unit.device_agent.nvidia.life import Life, play
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.test_profiles_in_use import mount, shared

CARD, SHARED = "example.com/card", "example.com/card.shared"
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
