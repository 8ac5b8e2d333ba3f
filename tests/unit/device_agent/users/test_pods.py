"""Pods exist while they have a cgroup, in each way in which kubelets name one."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.users.pods import MOST_ENTRIES, plain_uid, pod_uids, read_pods

UID, UNDERSCORES, PLAIN = (
    "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e", "11e5bd56_3c42_4dbf_a1c1_7b1c0dbb3d6e", "11e5bd563c424dbfa1c17b1c0dbb3d6e"
)  # fmt: skip
STATIC = "3f2ad0a6c3d5f1b7b6e0c8d4a1e2f3b4"


def make(root: Path, folders: Iterable[str]) -> str:
    """Make folders of cgroups, each with one of a container."""
    for folder in folders:
        (root / folder / "cri-containerd-podman.scope").mkdir(parents=True)
    return str(root)


@pytest.mark.parametrize(
    ("name", "uids"),
    [
        pytest.param(f"pod{UID}", {PLAIN}, id="cgroupfs"),
        pytest.param(f"kubepods-pod{UNDERSCORES}.slice", {PLAIN}, id="systemd, guaranteed"),
        pytest.param(f"kubepods-burstable-pod{UNDERSCORES}.slice", {PLAIN}, id="systemd, burstable"),
        pytest.param(f"kubelet-kubepods-besteffort-pod{UNDERSCORES}.slice", {PLAIN}, id="systemd in a container"),
        pytest.param(f"kubepods-burstable-pod{STATIC}.slice", {STATIC}, id="a static pod"),
        pytest.param("kubepods-burstable.slice", set(), id="a class of service"),
        pytest.param("burstable", set(), id="a class of service of cgroupfs"),
        pytest.param("kubepods.slice", set(), id="the tree"),
        pytest.param("podman-17", {"man17"}, id="somebody's folder: no pod has that UID"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_the_name_of_a_folder_says_whose_it_is(name: str, uids: set[str]) -> None:
    """UIDs are written without what the ways differ in."""
    assert pod_uids([name]) == uids


@given(st.lists(st.text(max_size=80), max_size=5))
def test_any_names_are_read(names: list[str]) -> None:
    """What is no pod is left out."""
    assert all(uid == plain_uid(uid) for uid in pod_uids(names))


@pytest.mark.parametrize(
    "folders",
    [
        pytest.param(
            [f"kubepods.slice/kubepods-pod{UNDERSCORES}.slice",
             f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice"], id="v2, systemd",
        ),
        pytest.param([f"kubepods/pod{UID}", f"kubepods/besteffort/pod{STATIC}"], id="v2, cgroupfs"),
        pytest.param(
            [f"memory/kubepods/pod{UID}", f"memory/kubepods/burstable/pod{STATIC}", f"pids/kubepods/pod{UID}"],
            id="v1, cgroupfs",
        ),
        pytest.param(
            [f"memory/kubepods.slice/kubepods-pod{UNDERSCORES}.slice",
             f"pids/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC}.slice"],
            id="v1, systemd, one pod left in one tree only",
        ),
        pytest.param(
            [f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORES}.slice",
             f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
             f"kubelet-kubepods-burstable-pod{STATIC}.slice"], id="a node that is a container, systemd",
        ),
        pytest.param([f"kubelet/kubepods/pod{UID}", f"kubelet/kubepods/burstable/pod{STATIC}"], id="cgroupfs in one"),
    ],
)  # fmt: skip
def test_pods_of_each_kind_of_node_are_found(tmp_path: Path, folders: list[str]) -> None:
    """With what else is in these trees: processes, containers of pods, folders of services."""
    (tmp_path / "system.slice" / f"pod{UID}x").mkdir(parents=True)
    cgroups = make(tmp_path, folders)
    (tmp_path / folders[0].partition("/pod")[0] / "cgroup.procs").touch()
    assert read_pods(cgroups) == frozenset({PLAIN, STATIC})


@pytest.mark.parametrize(
    "folders",
    [
        pytest.param([], id="nothing is mounted"),
        pytest.param(["system.slice"], id="no tree of pods"),
        pytest.param(
            ["kubepods.slice/kubepods-burstable.slice"], id="a tree without pods: the agent's own is elsewhere"
        ),
        pytest.param([f"kubepods/pod{number}" for number in range(MOST_ENTRIES + 1)], id="too many"),
    ],
)
def test_where_pods_cannot_be_known_that_is_said(tmp_path: Path, folders: list[str]) -> None:
    """None is not the same as no pods."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert read_pods(str(tmp_path)) is None
