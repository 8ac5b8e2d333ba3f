"""Of which pod a process is, in each way in which runtimes and the kubelet write that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.nvml_container.cgroups import parse_pod_uid

UID, UNDERSCORES, PLAIN = (
    "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e", "11e5bd56_3c42_4dbf_a1c1_7b1c0dbb3d6e", "11e5bd563c424dbfa1c17b1c0dbb3d6e"
)  # fmt: skip
INNER, INNER_PLAIN = "99999999-aaaa-bbbb-cccc-dddddddddddd", "99999999aaaabbbbccccdddddddddddd"
STATIC = "3f2ad0a6c3d5f1b7b6e0c8d4a1e2f3b4"
ID = "4f1d2a3b" * 8
SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice"


def v1(path: str) -> str:
    """Write the file of a node with cgroup v1, as Documentation/admin-guide/cgroup-v1/cgroups.rst has it."""
    controllers = ("misc", "pids", "memory", "cpu,cpuacct", "devices", "net_cls,net_prio", "name=systemd")
    return "".join(f"{len(controllers) - n}:{name}:{path}\n" for n, name in enumerate(controllers))


def v2(path: str) -> str:
    """Write the file of a node with cgroup v2, as Documentation/admin-guide/cgroup-v2.rst has it."""
    return f"0::{path}\n"


# The names are those that the kubelet makes (Kubernetes, pkg/kubelet/cm: cgroup_manager_linux.go and
# pod_container_manager_linux.go), and below them those of the runtimes: containerd's CRI (getCgroupsPath:
# SLICE:cri-containerd:ID with systemd, PARENT/ID with cgroupfs), CRI-O (internal/config/cgmgr: crio-ID.scope, crio-ID,
# crio-conmon-ID), Docker (docker-ID.scope, PARENT/ID). runc's systemd driver makes of SLICE:PREFIX:NAME the scope
# PREFIX-NAME.scope (runc's page on systemd).
PODS = [
    pytest.param(v2(f"/{SLICE}/cri-containerd-{ID}.scope"), PLAIN, id="containerd, systemd, v2"),
    pytest.param(v1(f"/{SLICE}/cri-containerd-{ID}.scope"), PLAIN, id="containerd, systemd, v1"),
    pytest.param(v2(f"/kubepods/burstable/pod{UID}/{ID}"), PLAIN, id="containerd, cgroupfs, v2"),
    pytest.param(v1(f"/kubepods/besteffort/pod{UID}/{ID}"), PLAIN, id="containerd, cgroupfs, v1, best effort"),
    pytest.param(v2(f"/kubepods/pod{UID}/{ID}"), PLAIN, id="cgroupfs, guaranteed"),
    pytest.param(
        v2(f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope"), PLAIN,
        id="systemd, guaranteed",
    ),
    pytest.param(
        v1(f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORES}.slice:cri-containerd:{ID}"), PLAIN,
        id="containerd with cgroupfs below a kubelet with systemd",
    ),
    pytest.param(
        v1(f"/kubepods-besteffort-pod{UNDERSCORES}.slice:cri-containerd:{ID}"), PLAIN, id="the same at the root"
    ),
    pytest.param(v2(f"/{SLICE}/crio-{ID}.scope/container"), PLAIN, id="CRI-O, systemd, with the container's own"),
    pytest.param(v2(f"/{SLICE}/crio-conmon-{ID}.scope"), PLAIN, id="CRI-O's monitor"),
    pytest.param(v1(f"/kubepods/burstable/pod{UID}/crio-{ID}"), PLAIN, id="CRI-O, cgroupfs, v1"),
    pytest.param(v1(f"/{SLICE}/docker-{ID}.scope"), PLAIN, id="Docker, systemd, v1"),
    pytest.param(v1(f"/kubepods/burstable/pod{UID}/{ID}"), PLAIN, id="Docker, cgroupfs, v1"),
    pytest.param(v1(f"/{SLICE}/docker-{ID}.scope") + "0::/system.slice/containerd.service\n", PLAIN, id="hybrid"),
    pytest.param(v1(f"/{SLICE}/docker-{ID}.scope") + "13:rdma:/\n", PLAIN, id="a hierarchy without pods"),
    pytest.param(
        v2(f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-{ID}.scope"), STATIC,
        id="a static pod",
    ),
    pytest.param(
        v2(f"/custom.slice/custom-kubepods.slice/custom-kubepods-pod{UNDERSCORES}.slice/crio-{ID}.scope"), PLAIN,
        id="--cgroup-root, systemd",
    ),
    pytest.param(v1(f"/custom/kubepods/besteffort/pod{UID}/{ID}"), PLAIN, id="--cgroup-root, cgroupfs"),
    pytest.param(
        v2("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
           f"kubelet-kubepods-besteffort-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope"), PLAIN, id="kind",
    ),
    pytest.param(v1(f"/docker/{ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}"), PLAIN, id="kind, v1"),
    pytest.param(
        v2(f"/../../kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope"), PLAIN,
        id="from a cgroup namespace, systemd",
    ),
    pytest.param(v2(f"/../../pod{UID}/{ID}"), PLAIN, id="from a cgroup namespace, cgroupfs, same class"),
    pytest.param(v2(f"/../../../besteffort/pod{UID}/{ID}"), PLAIN, id="from a cgroup namespace, another class"),
]  # fmt: skip

NO_PODS = [
    pytest.param("", id="a process that is gone"),
    pytest.param(v2("/"), id="a thread of the kernel"),
    pytest.param(v2("/init.scope"), id="the first process"),
    pytest.param(v2("/system.slice/containerd.service"), id="a service"),
    pytest.param(v2("/system.slice/kubelet.service"), id="the kubelet"),
    pytest.param(v2("/user.slice/user-1000.slice/session-3.scope"), id="somebody who is logged in"),
    pytest.param(v2(f"/system.slice/docker-{ID}.scope"), id="a container in no pod"),
    pytest.param(v2("/machine.slice/libpod-payload-podman.scope"), id="podman"),
    pytest.param(v2(f"/system.slice/pod{UID}"), id="a folder of a service that is named like a pod's"),
    pytest.param(v2(f"/user.slice/user-1000.slice/pod{UID}.slice"), id="a user's slice that is named like a pod's"),
    pytest.param(
        v2(f"/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{UNDERSCORES}.slice"),
        id="a user's own tree of pods",
    ),
    pytest.param(v2("/kubepods.slice"), id="the tree of pods"),
    pytest.param(v2("/kubepods.slice/kubepods-burstable.slice"), id="a class of service"),
    pytest.param(v2(f"/kubepods/burstable/other/pod{UID}"), id="a folder in a class that is no pod"),
    pytest.param(v2("/../cri-containerd-1.scope"), id="our own pod, from a cgroup namespace"),
    pytest.param(v2(f"/../../../../system.slice/pod{UID}"), id="a service, from a cgroup namespace"),
    pytest.param(
        v1(f"/kubepods/pod{UID}/{ID}") + v1(f"/kubepods/pod{INNER}/{ID}"), id="hierarchies that name two pods"
    ),
    pytest.param("\x00\n::\n:\n0:0\n///\n", id="rubbish"),
]


@pytest.mark.parametrize(("text", "uid"), PODS)
def test_each_runtime_and_driver_has_its_way_to_name_a_pod(text: str, uid: str) -> None:
    """UIDs are written without what the ways differ in."""
    assert parse_pod_uid(text) == uid


@pytest.mark.parametrize("text", NO_PODS)
def test_a_process_of_no_pod_has_none(text: str) -> None:
    """Neither those of the node, nor what calls itself one elsewhere."""
    assert parse_pod_uid(text) == ""


@pytest.mark.parametrize(("text", "uid"), PODS)
@pytest.mark.parametrize(
    "nested",
    [
        pytest.param(f"/kubepods/burstable/pod{INNER}/{ID}", id="a kubelet in a container"),
        pytest.param(f"/pod{INNER}", id="a folder that is named like a pod's"),
        pytest.param(f"/kubepods.slice/kubepods-pod{INNER_PLAIN}.slice/crio-{ID}.scope", id="systemd in a container"),
        pytest.param(f"/kubepods-pod{INNER_PLAIN}.slice:cri-containerd:{ID}", id="containerd in a container"),
    ],
)
def test_what_is_nested_in_a_pod_is_that_pods(text: str, uid: str, nested: str) -> None:
    """Its container may make any folders below its own."""
    lines = [line + nested if uid in line.replace("-", "").replace("_", "") else line for line in text.splitlines()]
    assert parse_pod_uid("\n".join(lines)) == uid


WORDS = st.sampled_from(
    ["", "..", "kubepods", "kubepods.slice", "burstable", "kubepods-besteffort.slice", f"pod{INNER}", "docker", ":",
     "x\x0b0:", "x\u20280:", f"kubepods-pod{INNER_PLAIN}.slice", f"kubepods-pod{INNER_PLAIN}.slice:crio:x", "x"]
)  # fmt: skip


@given(st.text(max_size=200) | st.lists(WORDS | st.text(max_size=20), max_size=12).map("/".join))
def test_any_text_is_read(text: str) -> None:
    """What is no pod's is nobody's."""
    uid = parse_pod_uid(text)
    assert "-" not in uid
    assert "_" not in uid


@given(st.lists(WORDS | st.text(st.characters(exclude_characters="\n"), max_size=20), max_size=12))
def test_no_nested_folder_makes_another_pod_of_a_pods_process(nested: list[str]) -> None:
    """Whatever it is named: the kernel refuses line feeds in names, and no other character."""
    for path in (f"/{SLICE}/cri-containerd-{ID}.scope", f"/kubepods/burstable/pod{UID}/{ID}", f"/../../pod{UID}/{ID}"):
        assert parse_pod_uid(v2("/".join((path, *nested)))) == PLAIN
