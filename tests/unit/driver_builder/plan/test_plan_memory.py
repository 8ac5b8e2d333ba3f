"""Plans that cost what changed: what is remembered, and when it is not believed."""

from dataclasses import replace

import pytest

from driver_builder.objects.driver_keys import driver_keys
from driver_builder.plan.plan import plan
from driver_builder.plan.plan_memory import PlanMemory, is_at_rest
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import OrphanedPod, Snapshot
from tests.support.driver_builder.factories import (
    BOOT_ID,
    KERNEL,
    OTHER_KERNEL,
    SETTINGS,
    daemon_set,
    driver,
    node,
    pod,
    ready_snapshot,
    snapshot,
    target,
    with_images,
)
from tests.support.driver_builder.plans import after, plan_in_detail


def at_rest() -> Snapshot:
    """Return a cluster in which nothing is to be done, and whose statuses say so."""
    seen = ready_snapshot()
    while (later := after(seen, plan(seen, SETTINGS))).drivers != seen.drivers:
        seen = later
    return seen


def test_a_driver_at_rest_is_not_planned_anew() -> None:
    """The plan is the very object of the last time, also later."""
    memory, seen = PlanMemory(), at_rest()
    (first,) = plan(seen, SETTINGS, memory=memory).drivers
    (second,) = plan(replace(seen, now=seen.now + 1.0), SETTINGS, memory=memory).drivers
    assert second is first


def changes(seen: Snapshot) -> dict[str, Snapshot]:
    """Change one thing that a plan depends on, in each way."""
    node, pod = seen.nodes[0], seen.pods[0]
    (driver,) = seen.drivers
    return {
        "a label of a node": replace(seen, nodes=(replace(node, labels={**node.labels, "a": "b"}), *seen.nodes[1:])),
        "a pod that is not ready": replace(seen, pods=(replace(pod, ready=False), *seen.pods[1:])),
        "a pod that is gone": replace(seen, pods=seen.pods[1:]),
        "a driver that is paused": replace(seen, drivers=(replace(driver, paused=True),)),
        "an image that is gone": replace(seen, images={}),
        "a build that runs": replace(seen, running_builds=frozenset({"00" * 8})),
        "a DaemonSet that is gone": replace(seen, daemon_sets=()),
    }


@pytest.mark.parametrize("change", changes(at_rest()))
def test_a_change_is_planned(change: str) -> None:
    """The plan is that of the change alone, whatever was remembered; so is the one after the way back."""
    memory, seen = PlanMemory(), at_rest()
    plan(seen, SETTINGS, memory=memory)
    changed = changes(seen)[change]
    assert plan(changed, SETTINGS, memory=memory) == plan(changed, SETTINGS)
    assert plan(seen, SETTINGS, memory=memory) == plan(seen, SETTINGS)


def test_what_is_to_be_done_is_not_remembered() -> None:
    """It was done, or it was refused: the next plan looks again."""
    memory, seen = PlanMemory(), ready_snapshot()
    (first,) = plan(seen, SETTINGS, memory=memory).drivers
    assert not is_at_rest(first)
    (second,) = plan(seen, SETTINGS, memory=memory).drivers
    assert second is not first
    assert second == first


def test_of_a_status_that_was_written_no_node_is_weighed_again() -> None:
    """A reconcile follows our own write; nodes, pods and DaemonSets are the very ones of before."""
    memory, seen = PlanMemory(), at_rest()
    plan(seen, SETTINGS, memory=memory)
    (one,) = seen.drivers
    first = memory.of(one.key).ordinary
    assert set(first.others.values()) == {()}
    written = replace(seen, drivers=(replace(one, status={**one.status, "conditions": []}),))
    assert plan(written, SETTINGS, memory=memory) == plan(written, SETTINGS)
    assert memory.of(one.key).ordinary is first
    noted = replace(written, orphaned_pods=(OrphanedPod(driver=one.key, node="node-a"),))
    assert plan(noted, SETTINGS, memory=memory) == plan_in_detail(noted, SETTINGS)
    assert set(memory.of(one.key).ordinary.others.values()) == {("node-a",)}


def fleet() -> Snapshot:
    """Return nodes of two kernels at rest."""
    kernels = {"node-a": KERNEL, "node-b": KERNEL, "node-c": OTHER_KERNEL, "node-d": OTHER_KERNEL}
    return ready_snapshot(*(node(name, kernel) for name, kernel in kernels.items()))


def test_of_a_changed_pod_the_nodes_of_other_targets_are_not_weighed_again() -> None:
    """What is known of them is the very object of before."""
    memory, seen = PlanMemory(), fleet()
    plan(seen, SETTINGS, memory=memory)
    first = memory.of(driver().key).ordinary
    assert set(first.others.values()) == {()}
    first_pod, *others = seen.pods
    changed = replace(seen, pods=(replace(first_pod, ready=False), *others))
    assert plan(changed, SETTINGS, memory=memory) == plan_in_detail(changed, SETTINGS)
    second = memory.of(driver().key).ordinary
    assert second.others[target(OTHER_KERNEL)] is first.others[target(OTHER_KERNEL)]
    assert second.others[target(KERNEL)] == ("node-a",)


def steps(seen: Snapshot) -> dict[str, tuple[Snapshot, ...]]:
    """Let nodes and pods come, go and change, one thing after the other."""
    (a, b, *rest), (of_a, of_b, *pods) = seen.nodes, seen.pods
    silent = replace(seen, pods=(replace(of_a, ready=False), of_b, *pods))
    gone = replace(seen, pods=(of_b, *pods))
    other = replace(a, labels={**a.labels, "a": "b"})
    return {
        "a pod and back": (silent, seen),
        "a pod, then another one": (
            silent,
            replace(silent, pods=(silent.pods[0], replace(of_b, ready=False), *pods)),
            seen,
        ),
        "a pod that goes and comes again": (gone, replace(seen, pods=(of_b, *pods, replace(of_a, uid="again")))),
        "two pods in another order": (replace(seen, pods=(of_b, of_a, *pods)),),
        "a second pod": (replace(seen, pods=(*seen.pods, replace(of_a, name="second", uid="second"))), seen),
        "a node": (replace(seen, nodes=(other, b, *rest)), seen),
        "a node that goes": (replace(seen, nodes=(b, *rest)), seen),
        "a node without its label": (replace(seen, nodes=(without_label(a), b, *rest)), seen),
        "a node and a pod": (replace(silent, nodes=(other, b, *rest)), replace(seen, nodes=(other, b, *rest))),
        "a DaemonSet": (
            replace(seen, daemon_sets=(replace(seen.daemon_sets[0], fingerprint="x"), *seen.daemon_sets[1:])),
            seen,
        ),
        "a DaemonSet that goes": (replace(seen, daemon_sets=seen.daemon_sets[1:]), silent, seen),
        "what is known of an orphan": (
            replace(seen, orphaned_pods=(OrphanedPod(driver=driver().key, node="node-b"),)),
            seen,
        ),
    }


def without_label(item: Node) -> Node:
    """Return a node that has lost its ready label."""
    return replace(item, labels={key: value for key, value in item.labels.items() if not key.endswith(".ready")})


@pytest.mark.parametrize("name", steps(fleet()))
def test_after_each_change_the_plan_is_that_of_no_memory(name: str) -> None:
    """Whatever was remembered of the plans before."""
    memory, seen = PlanMemory(), fleet()
    plan(seen, SETTINGS, memory=memory)
    for step in steps(seen)[name]:
        assert plan(step, SETTINGS, memory=memory) == plan_in_detail(step, SETTINGS)
        fresh = PlanMemory()
        plan(step, SETTINGS, memory=fresh)
        assert known(memory) == known(fresh)


def known(memory: PlanMemory) -> tuple[object, ...]:
    """Return which nodes of the driver are ordinary."""
    found = memory.of(driver().key).ordinary
    return (found.others, found.waiting, found.elsewhere)


def test_drivers_that_are_gone_are_forgotten() -> None:
    """And one of that name that comes back is planned anew."""
    memory, seen = PlanMemory(), at_rest()
    (first,) = plan(seen, SETTINGS, memory=memory).drivers
    assert plan(replace(seen, drivers=()), SETTINGS, memory=memory).drivers == ()
    (second,) = plan(seen, SETTINGS, memory=memory).drivers
    assert second is not first


def test_a_clock_that_was_set_back_has_planned_nothing() -> None:
    """What waits for a time that was wrong is planned anew by the right one."""
    memory, seen = PlanMemory(), at_rest()
    (first,) = plan(replace(seen, now=seen.now + 3600.0), SETTINGS, memory=memory).drivers
    (second,) = plan(seen, SETTINGS, memory=memory).drivers
    assert second is not first


def test_the_pod_of_another_target_makes_no_node_ordinary() -> None:
    """A node whose target becomes another one runs the previous image, though neither it nor its pod changed.

    It has a version of its operating system that no DaemonSet was made for. First the node of version 12 has lost the
    labels of its kernel, then that of version 11.
    """
    memory, drivers = PlanMemory(), (driver(spec_changes={"build": {"baseImage": "debian:bookworm-slim"}}),)
    made = {version: with_images(snapshot(node(os_version=version), drivers=drivers)) for version in ("11", "12")}
    sets = {version: replace(daemon_set(seen), os_version=version, uid=version) for version, seen in made.items()}
    nodes = {version: labelled(node(f"node-{version}", os_version=version)) for version in ("11", "12", "13")}
    pods = [
        replace(
            pod(made[home], f"node-{version}"),
            target=sets[home].target,
            fingerprint=sets[home].fingerprint,
            image=sets[home].image,
        )
        for version, home in (("11", "11"), ("12", "12"), ("13", "11"))
    ]
    base = replace(
        made["11"],
        daemon_sets=tuple(sets.values()),
        pods=tuple(pods),
        images={**made["11"].images, **made["12"].images},
    )
    for lost in ("12", "11"):
        others = {**nodes, lost: replace(nodes[lost], labels={"pool": "edu"})}
        seen = replace(base, nodes=tuple(others.values()))
        assert plan(seen, SETTINGS, memory=memory) == plan_in_detail(seen, SETTINGS)


def labelled(item: Node) -> Node:
    """Return a node where the driver is proven."""
    label = driver_keys(driver().key).ready
    annotations = {**item.annotations, label: f"{BOOT_ID} {KERNEL}"}
    return replace(item, labels={**item.labels, label: "1.0.0"}, annotations=annotations)
