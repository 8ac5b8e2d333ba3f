"""Pods in the cache are sorted by what controls them: again only those that changed, with the same result."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.grouped import Grouped, Kept
from driver_builder.cluster.pods_of_drivers import PodReader, Pods
from driver_builder.cluster.read_pods import OwnedPod
from driver_builder.tasks.proof_pod import PROOF, Program
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import State
from tests.support.driver_builder.factories import LOADED, daemon_set, driver, pod, ready_snapshot, task

SEEN = ready_snapshot()
OWNERS = ("one", "two")
OF_DRIVER = pod(SEEN, "node-a")
PULLER = task(PULL, "i", uid="pull")
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 199), st.sampled_from([*OWNERS, "pull", None]), max_size=6),
        st.sets(st.sampled_from(OWNERS)),
    ),
    max_size=5,
)


def owned(uid: int, owner: str) -> OwnedPod:
    """Return a pod of a DaemonSet, or a pull pod."""
    if owner == "pull":
        return OwnedPod(driver().uid, replace(PULLER, uid=str(uid)))
    return OwnedPod(owner, replace(OF_DRIVER, uid=str(uid), name=str(uid), node=f"node-{uid % 150}"))


def read(reader: PodReader, pods: Grouped[OwnedPod], owners: set[str]) -> Pods:
    """Read the pods with these DaemonSets."""
    namespace = SimpleNamespace(pods=SimpleNamespace(collection=pods))
    cache = cast(ClusterCache, SimpleNamespace(namespaces=(namespace,)))
    daemon_sets = tuple(replace(daemon_set(SEEN), uid=uid) for uid in sorted(owners))
    return reader.read(cache, SEEN.drivers, daemon_sets)


@given(steps=STEPS)
def test_pods_that_are_sorted_again_are_sorted_as_new_ones(
    steps: list[tuple[dict[int, str | None], set[str]]],
) -> None:
    """Whatever came, went, changed its owner, or whose DaemonSet came or went."""
    pods: Grouped[OwnedPod] = Grouped(lambda item: item.pod.driver)
    for uid in range(150):
        pods.put(str(uid), Kept(1, owned(uid, OWNERS[uid % 2])))
    reader = PodReader()
    for changed, owners in steps:
        for uid, owner in changed.items():
            if owner is None:
                pods.pop(str(uid))
            else:
                pods.put(str(uid), Kept(1, owned(uid, owner)))
        found, anew = read(reader, pods, owners), read(PodReader(), pods, owners)
        assert found == anew
        assert all(one.by_node == anew.pods.groups[key].by_node for key, one in found.pods.groups.items())


def test_a_daemon_set_that_goes_costs_its_pods_alone() -> None:
    """Pieces without a pod of it are the very objects of before."""
    pods: Grouped[OwnedPod] = Grouped(lambda item: item.pod.driver)
    for uid in range(128):
        pods.put(str(uid), Kept(1, owned(uid, OWNERS[uid // 64])))
    reader = PodReader()
    (before,) = read(reader, pods, {"one", "two"}).pods.groups.values()
    left = read(reader, pods, {"one"})
    (after,) = left.pods.groups.values()
    assert after.pieces[0] is before.pieces[0]
    assert (len(after), len(left.orphaned)) == (64, 64)


def test_pods_have_the_report_of_their_proof_pod() -> None:
    """One of another driver's object is no proof; what did not change stays the same object."""
    program = replace(OF_DRIVER, uid="u", name="u", proof=None, program=Program(started_at=1.0))
    proof = task(PROOF, "u", state=State.SUCCEEDED, ended_at=2.0, report=LOADED)
    pods: Grouped[OwnedPod] = Grouped(lambda item: item.pod.driver)
    pods.put("u", Kept(1, OwnedPod("one", program)))
    pods.put("other", Kept(1, OwnedPod("one", replace(OF_DRIVER, uid="other", name="other"))))
    pods.put("p", Kept(1, OwnedPod("somebody", proof)))
    reader = PodReader()
    assert {pod.uid: pod.proof for pod in read(reader, pods, {"one"}).pods}["u"] is None
    pods.put("p", Kept(2, OwnedPod(driver().uid, proof)))
    found = read(reader, pods, {"one"})
    assert {pod.uid: pod.proof for pod in found.pods} == {"u": LOADED, "other": OF_DRIVER.proof}
    assert found.tasks == (proof,)
    pods.put("third", Kept(1, OwnedPod("one", replace(OF_DRIVER, uid="third", name="third"))))
    before = {pod.uid: pod for pod in found.pods}
    assert {pod.uid: pod for pod in read(reader, pods, {"one"}).pods}["u"] is before["u"]
