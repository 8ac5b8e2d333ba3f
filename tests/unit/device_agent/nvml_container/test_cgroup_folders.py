"""Which cgroups of pods and containers a node has."""

from pathlib import Path

import pytest

from device_agent.memory_limits.driver import Folders
from device_agent.nvml_container.cgroup_folders import read_folders

SYSTEMD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_0b.slice"
GUARANTEED = "kubepods.slice/kubepods-pod0c.slice"
CGROUPFS = "kubepods/besteffort/pod0a-0b"
IN_KIND = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0c.slice"


@pytest.mark.parametrize("pod", [SYSTEMD, GUARANTEED, CGROUPFS, IN_KIND, "kubelet/kubepods/pod0c"])
def test_pods_and_containers_of_every_layout_are_read(tmp_path: Path, pod: str) -> None:
    """Not what a container has made inside of its own, nor services of the node."""
    for folder in (f"{pod}/cri-0a.scope/nested", f"{pod}/cri-0b.scope", "system.slice/cron.service", "user.slice"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / pod / "cri-0a.scope" / "dmem.max").touch()
    expected = Folders(paths=(pod, f"{pod}/cri-0a.scope", f"{pod}/cri-0b.scope"), dmem=(f"{pod}/cri-0a.scope",))
    assert read_folders(str(tmp_path)) == expected


def test_a_node_without_cgroups_has_no_folders(tmp_path: Path) -> None:
    """As where nothing is mounted."""
    assert read_folders(f"{tmp_path}/missing/") == Folders(paths=())
