"""Which cgroup gets which limit, and what is still to be done."""

from collections.abc import Collection

import pytest

from device_agent.gpu_state.limits import PodLimit
from device_agent.memory_limits.driver import (
    CgroupLimit,
    Folders,
    Read,
    container_limits,
    divided_cards,
    kept_by_driver,
    limited_folders,
    limits_to_set,
    wanted_limits,
)
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, OTHER_CARD, A, B

UID = "0a1b2c3d-1111-4222-8333-444455556666"
PLAIN, UNDERSCORES = UID.replace("-", ""), UID.replace("-", "_")
SYSTEMD = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice"
GUARANTEED = f"kubepods.slice/kubepods-pod{UNDERSCORES}.slice"
CGROUPFS = f"kubepods/besteffort/pod{UID}"
IN_KIND = f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORES}.slice"
OTHER = "kubepods.slice/kubepods-podffffffff.slice"
FIRST, SECOND = f"{SYSTEMD}/cri-containerd-0a.scope", f"{SYSTEMD}/cri-containerd-0b.scope"


@pytest.mark.parametrize("pod", [SYSTEMD, GUARANTEED, CGROUPFS, IN_KIND])
def test_a_pods_folder_is_found_in_every_layout(pod: str) -> None:
    """Of the kubelet with systemd and with cgroupfs, and in a node that is a container."""
    folders = Folders(paths=[OTHER, f"{OTHER}/0a", pod, f"{pod}/0a"])
    assert limited_folders(PLAIN, folders) == (pod,)


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        pytest.param(Folders(paths=[SYSTEMD, FIRST, SECOND], dmem=[FIRST, SECOND]), (FIRST, SECOND), id="containers"),
        pytest.param(Folders(paths=[SYSTEMD, FIRST], dmem=[SYSTEMD, FIRST]), (FIRST,), id="not the pod besides"),
        pytest.param(Folders(paths=[SYSTEMD, FIRST, f"{OTHER}/0a"], dmem=[f"{OTHER}/0a"]), (SYSTEMD,),
                     id="another pod's containers have it"),
        pytest.param(Folders(paths=[SYSTEMD, FIRST], dmem=[f"{FIRST}/nested"]), (SYSTEMD,),
                     id="a folder inside of a container"),
        pytest.param(Folders(paths=[OTHER]), (), id="not made yet"),
        pytest.param(Folders(paths=[f"{OTHER}/0a/kubepods-pod{UNDERSCORES}.slice"]), (),
                     id="a folder that another pod has made"),
    ],
)  # fmt: skip
def test_containers_have_the_limit_where_the_kernel_has_dmem(folders: Folders, found: tuple[str, ...]) -> None:
    """Otherwise the pod has it; and what a container makes has no say."""
    assert limited_folders(PLAIN, folders) == found


PODS = {PLAIN: A, "ffffffff": B}
FOLDERS = Folders(paths=[SYSTEMD, OTHER])
LIMIT = PodLimit(CARD, A, 10 * GIB)


def test_a_limit_of_a_pod_whose_uid_is_known_is_of_no_other_pod_of_its_name() -> None:
    """One that was made anew may have other devices: podresources says so up to some seconds later."""
    before = Folders(paths=[GUARANTEED.replace("0a1b2c3d", "eeeeeeee"), SYSTEMD])
    pods = {PLAIN: A, PLAIN.replace("0a1b2c3d", "eeeeeeee"): A}
    assert len(wanted_limits([LIMIT], pods, before)) == 2
    (one,) = wanted_limits([LIMIT._replace(uid=PLAIN)], pods, before)
    assert one.folder == SYSTEMD


def test_each_pod_has_its_limit_on_each_card() -> None:
    """A pod whose UID is not known yet has none."""
    limits = [LIMIT, PodLimit(OTHER_CARD, A, 5 * GIB), PodLimit(CARD, "team/new", GIB)]
    assert wanted_limits(limits, PODS, FOLDERS) == (
        CgroupLimit(CARD, SYSTEMD, 10 * GIB, A),
        CgroupLimit(OTHER_CARD, SYSTEMD, 5 * GIB, A),
    )


def test_a_pod_that_was_made_anew_is_found_beside_the_one_before() -> None:
    """The kubelet keeps the logs of the earlier one for a while; its cgroup is gone, or goes soon."""
    assert [limit.folder for limit in wanted_limits([LIMIT], {"eeee": A, **PODS}, FOLDERS)] == [SYSTEMD]


WANTED = (CgroupLimit(CARD, SYSTEMD, 10 * GIB, A),)


def test_a_pods_limit_may_be_that_of_its_containers_and_of_nobody_elses() -> None:
    """Where the pod's folder has it."""
    folders = Folders(paths=[SYSTEMD, SECOND, FIRST, OTHER, f"{OTHER}/0a"])
    assert [one.folder for one in container_limits(WANTED, folders)] == [FIRST, SECOND]
    assert container_limits([WANTED[0]._replace(folder=FIRST)], folders) == ()


@pytest.mark.parametrize(
    ("read", "to_set"),
    [
        pytest.param({}, WANTED, id="not read"),
        pytest.param({(CARD, SYSTEMD): None}, WANTED, id="none"),
        pytest.param({(CARD, SYSTEMD): 12 * GIB}, WANTED, id="another one"),
        pytest.param({(OTHER_CARD, SYSTEMD): 10 * GIB}, WANTED, id="of another card"),
        pytest.param({(CARD, SYSTEMD): 10 * GIB}, (), id="in force"),
        pytest.param({(CARD, SYSTEMD): 10 * GIB - 4096}, (), id="in force, in the card's pages"),
    ],
)
def test_what_is_not_in_force_is_set(read: Read, to_set: tuple[CgroupLimit, ...]) -> None:
    """Again and again, until it is read back; and nothing is set twice. What is not set is watched."""
    assert limits_to_set(WANTED, read) == to_set
    assert kept_by_driver([LIMIT], WANTED, read) == (frozenset() if to_set else {(CARD, A)})


@pytest.mark.parametrize(
    ("devices", "kept"),
    [pytest.param(1, {(CARD, A)}, id="one device"), pytest.param(2, frozenset(), id="two devices")],
)
def test_containers_that_may_share_a_limit_are_watched_together(
    devices: int, kept: Collection[tuple[str, str]]
) -> None:
    """Each container has the limit of the pod: two that use the card could use twice as much."""
    limits = [LIMIT._replace(devices=devices)]
    wanted = wanted_limits(limits, PODS, Folders(paths=[SYSTEMD, FIRST, SECOND], dmem=[FIRST, SECOND]))
    read = {(limit.card, limit.folder): limit.limit for limit in wanted}
    assert len(wanted) == 2
    assert limits_to_set(wanted, read) == ()
    assert kept_by_driver(limits, wanted, read) == kept


def test_a_card_of_which_containers_of_a_pod_have_a_limit_each_is_named() -> None:
    """Where the pod has one device of it, or one folder, its limit is all that they have together."""
    wanted = wanted_limits([LIMIT], PODS, Folders(paths=[SYSTEMD, FIRST, SECOND], dmem=[FIRST, SECOND]))
    assert divided_cards([LIMIT._replace(devices=2)], wanted) == {CARD}
    assert divided_cards([LIMIT], wanted) == divided_cards([LIMIT._replace(devices=2)], WANTED) == frozenset()


def test_the_limit_of_a_pod_of_two_devices_is_kept_by_its_one_folder() -> None:
    """Its slice has the limit of all of it."""
    assert kept_by_driver([LIMIT._replace(devices=2)], WANTED, {(CARD, SYSTEMD): 10 * GIB}) == {(CARD, A)}


def test_a_pod_without_a_folder_is_not_kept() -> None:
    """Nothing was set for it, so nothing can be wrong with it."""
    assert kept_by_driver([LIMIT], (), {}) == frozenset()
