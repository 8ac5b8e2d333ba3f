"""Which cgroup gets which limit, and what is still to be done."""

import pytest

from device_agent.memory_limits.accounts import Account
from device_agent.memory_limits.driver import (
    CgroupLimit,
    Folders,
    Read,
    limited_folders,
    limits_to_set,
    news,
    still_watched,
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


def account(pod: str = A, card: str = CARD, limit: int | None = 10 * GIB, devices: int = 1) -> Account:
    """Make an account, of which a driver needs no more."""
    return Account(card=card, pod=pod, limit=limit, devices=devices)


UIDS = {A: [PLAIN], B: ["ffffffff"]}
FOLDERS = Folders(paths=[SYSTEMD, OTHER])


def test_each_pod_with_a_limit_has_one_on_each_card() -> None:
    """A pod without a limit, or whose UID is not known yet, has none."""
    found = wanted_limits(
        [account(), account(card=OTHER_CARD, limit=5 * GIB), account(B, limit=None), account("team/new")], UIDS, FOLDERS
    )
    assert found == (CgroupLimit(CARD, SYSTEMD, 10 * GIB, A), CgroupLimit(OTHER_CARD, SYSTEMD, 5 * GIB, A))


def test_a_pod_that_was_made_anew_is_found_beside_the_one_before() -> None:
    """The kubelet keeps the logs of the earlier one for a while; its cgroup is gone, or goes soon."""
    found = wanted_limits([account()], {A: [PLAIN, "eeee"]}, FOLDERS)
    assert [limit.folder for limit in found] == [SYSTEMD]


WANTED = (CgroupLimit(CARD, SYSTEMD, 10 * GIB, A),)


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
    assert bool(still_watched([account()], WANTED, read)) is bool(to_set)


@pytest.mark.parametrize(
    ("devices", "is_watched"), [pytest.param(1, False, id="one device"), pytest.param(2, True, id="two devices")]
)
def test_containers_that_may_share_a_limit_are_watched_together(devices: int, *, is_watched: bool) -> None:
    """Each container has the limit of the pod: two that use the card could use twice as much."""
    one = account(devices=devices)
    wanted = wanted_limits([one], UIDS, Folders(paths=[SYSTEMD, FIRST, SECOND], dmem=[FIRST, SECOND]))
    read = {(limit.card, limit.folder): limit.limit for limit in wanted}
    assert len(wanted) == 2
    assert limits_to_set(wanted, read) == ()
    assert bool(still_watched([one], wanted, read)) is is_watched


def test_a_pod_of_two_devices_with_one_folder_is_not_watched() -> None:
    """Its slice has the limit of all of it."""
    one = account(devices=2)
    assert still_watched([one], WANTED, {(CARD, SYSTEMD): 10 * GIB}) == ()


def test_a_card_that_keeps_no_limits_is_reported_once() -> None:
    """And again if the reason is another one; one that keeps them is no news."""
    refused = {CARD: "it is in MIG mode", OTHER_CARD: "its driver cannot limit memory"}
    assert news(refused, {}) == refused
    assert news(refused, refused) == {}
    assert news(refused, {CARD: "its driver cannot limit memory"}) == refused
    assert news({}, refused) == {}
