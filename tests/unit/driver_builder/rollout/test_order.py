"""Drivers that depend on each other, on a node where one of them is replaced: who yields, who waits, who comes back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.model.driver_key import NOBODY, DriverKey
from driver_builder.nodes.changes import RunTask, Taking, move_node
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.nodes.standing import Lanes, Placed
from driver_builder.objects import loaded
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.slots import SECOND, Place, Slot
from driver_builder.objects.yielding import OUTSIDE, Yielding, render_yielding
from driver_builder.rollout.clearance import Clearing, Return
from driver_builder.rollout.order import Order
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.targets.dependencies import dependencies
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.unload_pod import UNLOAD
from kube_api import names
from tests.support.driver_builder.changes import replaced_pod
from tests.support.driver_builder.factories import BOOT_ID, KERNEL, NAMESPACE, NOW, daemon_set, driver, node, pod, task
from tests.support.driver_builder.factories import snapshot as seen_by
from tests.support.driver_builder.factories import target as target_of

OFED, MEM, APP = (DriverKey(f"{NAMESPACE}/{name}") for name in ("ofed", "mem", "app"))
TARGET = target_of()
BUILT = seen_by(drivers=(driver("ofed"),))
OLD = daemon_set(BUILT)
NEW = replace(OLD, expected={"edudrv": "NEW"}, fingerprint="new", slot=Slot(SECOND, Place.MOVED), name=f"{OLD.name}-b")
LABEL = names.wave_label(NAMESPACE, "ofed")
MOVE = move_node(node="node-a", driver=OFED, value=NEW.target_label)
LANES = Lanes(front=NEW, slot=NEW.slot, spare=replace(OLD, slot=Slot("", Place.OTHERS)), front_value=NEW.target_label)
LOADED = loaded.render(
    Loaded(loads=(Load(target=TARGET.short_hash, kernel=KERNEL, boot_id=BOOT_ID, modules=(("memdrv", "X"),)),))
)


def needing(name: str, *others: str, **changes: Any) -> DriverContainer:
    """Make a driver that depends on others."""
    needed = [{"name": other} for other in others] or None
    return replace(driver(name, spec_changes={"dependsOn": needed}), **changes)


def part(container: DriverContainer, placed: Placed | None = None, **changes: Any) -> DriverPlan:
    """Make a driver's plan, in which its image is there."""
    known = {} if placed is None else {TARGET.group: placed}
    return DriverPlan(driver=container, rebuilds=Rebuilds(requests={}, tokens={}), unknown={}, placed=known, **changes)


INVALID = driver("mem", spec_changes={"module": None})
READY = Placed(target=TARGET.short_hash, is_written=True)
IN_WAVE = replace(READY, lanes=LANES)


def order(*nodes: Node, pods: tuple[DriverPod, ...] | None = None, **changes: DriverPlan) -> Order:
    """Make three drivers, of which each depends on the one before; the first one is in a wave."""
    parts = {
        "ofed": part(driver("ofed"), IN_WAVE),
        "mem": part(needing("mem", "ofed"), READY),
        "app": part(needing("app", "mem"), READY),
    } | changes
    every = tuple(item.driver for item in parts.values())
    own = (pod(BUILT),) if pods is None else pods
    snapshot = seen_by(*nodes, drivers=every, pods=own, daemon_sets=(LANES.spare, NEW))
    return Order.of(parts.values(), dependencies(every, {MEM: (OFED,)}), snapshot)


def seeing(found: Order, **changes: Any) -> Order:
    """Change what is seen of the cluster."""
    return Order(replace(found.known, snapshot=replace(found.known.snapshot, **changes)))


def with_loads(
    *drivers: DriverKey, first: DriverKey = NOBODY, yielding: tuple[DriverKey, ...] = (), **labels: Any
) -> Node:
    """Make a node where dependent drivers are loaded, and perhaps yield."""
    made = node()
    record = {names.YIELDING_ANNOTATION: render_yielding(Yielding(first=first, drivers=yielding))} if first else {}
    annotations = {**made.annotations, **record, **{loaded.annotation(key): LOADED for key in drivers}}
    return replace(made, annotations=annotations, labels={**made.labels, **labels})


def labelled(*drivers: DriverKey) -> dict[str, str]:
    """Return the labels that keep drivers away."""
    return {driver_keys(key).yields: "ofed" for key in drivers}


# ---------------------------------------------------------------- who yields


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(with_loads(), Clearing(is_clear=True), id="none is loaded"),
        pytest.param(
            with_loads(MEM),
            Clearing(record=Yielding(first=OFED, drivers=(MEM,)), label=driver_keys(MEM).yields, words="mem"),
            id="one that depends on it",
        ),
        pytest.param(
            with_loads(MEM, APP),
            Clearing(record=Yielding(first=OFED, drivers=(APP, MEM)), label=driver_keys(APP).yields, words="app"),
            id="the last of the order first",
        ),
        pytest.param(
            with_loads(MEM, APP, first=OFED, yielding=(APP, MEM), **labelled(APP)), Clearing(words="app"), id="it goes"
        ),
        pytest.param(
            with_loads(MEM, first=OFED, yielding=(APP, MEM), **labelled(APP)),
            Clearing(record=Yielding(first=OFED, drivers=(APP, MEM)), label=driver_keys(MEM).yields, words="mem"),
            id="it is gone, the next one",
        ),
        pytest.param(
            with_loads(first=OFED, yielding=(APP, MEM), **labelled(APP, MEM)),
            Clearing(is_clear=True),
            id="all are gone",
        ),
    ],
)
def test_those_that_depend_on_a_driver_yield_one_after_the_other(where: Node, expected: Clearing) -> None:
    """Each is gone before the next one goes."""
    found = order(where).clearance.clearing(where, OFED, MOVE)
    words = f"unloading {NAMESPACE}/{expected.words}, which depends on it, from node-a" if expected.words else ""
    assert found == replace(expected, words=words)


def test_one_that_cannot_be_unloaded_ends_it() -> None:
    """The reason is the one that the Node records."""
    known = loaded.parse(LOADED)
    assert known is not None
    where = with_loads(MEM, first=OFED, yielding=(MEM,), **labelled(MEM))
    held = loaded.render(replace(known, held="module memdrv: refcnt 1"))
    where = replace(where, annotations={**where.annotations, loaded.annotation(MEM): held})
    words = f"driver {MEM}, which depends on it, is not unloaded: module memdrv: refcnt 1"
    assert order(where).clearance.clearing(where, OFED, MOVE) == Clearing(stuck=MEM, failed=words, is_over=True)


@pytest.mark.parametrize("changes", [{"paused": True}, {"spec": INVALID.spec}])
def test_one_that_does_nothing_now_ends_it(changes: Mapping[str, Any]) -> None:
    """A driver that is paused, or whose spec is invalid, would never leave the node."""
    where = with_loads(MEM, first=OFED, yielding=(MEM,), **labelled(MEM))
    mem = part(replace(needing("mem", "ofed"), **changes))
    assert order(where, mem=mem).clearance.clearing(where, OFED, MOVE).failed


def test_nobody_yields_where_the_modules_stay() -> None:
    """Another image with the same modules replaces none; a driver that does not work there is loaded anew."""
    where = with_loads(MEM)
    same = replace(NEW, expected=OLD.expected)
    quiet = order(where, pods=(pod(BUILT, leaves_modules=True),))
    quiet = seeing(quiet, daemon_sets=(OLD, same))
    assert quiet.clearance.clearing(where, OFED, MOVE).is_clear
    broken = seeing(quiet, pods=(pod(BUILT, contrary=pod(BUILT).proof),))
    assert broken.clearance.clearing(where, OFED, MOVE).label == driver_keys(MEM).yields


# ---------------------------------------------------------------- who waits


def words_of(found: Order, action: Taking = MOVE, key: DriverKey = OFED) -> str:
    """Return why a driver waits."""
    return found.obstacle(action, key)


@pytest.mark.parametrize(
    ("mem", "expected"),
    [
        pytest.param(part(needing("mem", "ofed"), READY), "", id="its image is there"),
        pytest.param(part(needing("mem", "ofed")), "its image for the new symbols is not there yet", id="it is built"),
        pytest.param(part(needing("mem", "ofed"), replace(READY, is_written=False)), "not there yet", id="not written"),
        pytest.param(part(needing("mem", "ofed", paused=True), READY), "it is paused", id="paused"),
        pytest.param(part(needing("mem", "ofed", deleting=True), READY), "it is being removed", id="removed"),
        pytest.param(part(INVALID), "its spec is invalid", id="invalid"),
        pytest.param(
            part(needing("mem", "ofed"), IN_WAVE,
                 wave=Wave(phase=Phase.HALTED, started=NOW, refused={TARGET.short_hash: "node-b: LoadFailed"})),
            "its new image does not work: node-b: LoadFailed", id="its image failed",
        ),
    ],
)  # fmt: skip
def test_a_node_is_not_begun_before_all_can_be_loaded_again(mem: DriverPlan, expected: str) -> None:
    """One that has begun is not gone on with, unless the first driver does not work there or goes back."""
    begun = with_loads(MEM, first=OFED, yielding=(MEM,), **labelled(MEM))
    for where in (with_loads(MEM), begun):
        found = words_of(order(where, mem=mem))
        assert found.endswith(expected)
        assert bool(found) is bool(expected)
    broken = (pod(BUILT, contrary=pod(BUILT).proof),)
    assert words_of(order(begun, pods=broken, mem=mem)) == ""
    assert words_of(order(begun, mem=mem), replace(MOVE, labels={LABEL: None})) == ""


BUSY = replaced_pod(namespace=NAMESPACE, name="pod", uid="uid", node="node-a")
AHEAD: dict[str, Any] = {LABEL: NEW.target_label}
AWAY: dict[str, Any] = {**AHEAD, driver_keys(OFED).yields: OUTSIDE}
CURRENT = (replace(pod(BUILT), slot=SECOND, expected=NEW.expected),)


@pytest.mark.parametrize(
    ("where", "pods", "expected"),
    [
        pytest.param(
            with_loads(), (pod(BUILT),), "is not replaced on node node-a yet", id="the first has the old image"
        ),
        pytest.param(with_loads(**AHEAD), CURRENT, "", id="it has the new one"),
        pytest.param(with_loads(**AWAY), (), "is not replaced", id="it was outside"),
        pytest.param(with_loads(**AHEAD), (pod(BUILT),), "is not replaced", id="moved, with the old modules"),
        pytest.param(
            with_loads(first=OFED, yielding=(MEM,), **labelled(MEM)), CURRENT, "is replaced on", id="it yields"
        ),
    ],
)
def test_a_dependent_driver_is_not_replaced_before_the_first(
    where: Node, pods: tuple[DriverPod, ...], expected: str
) -> None:
    """Its image is built with the symbols of the new one."""
    found = words_of(order(where, pods=pods), BUSY, MEM)
    assert expected in found
    assert bool(found) is bool(expected)


# ---------------------------------------------------------------- who comes back


def test_all_may_come_back_at_once_each_with_what_fits() -> None:
    """Their own pods wait for each other. The wave label is that of the lane in which the first one is."""
    where = with_loads(first=OFED, yielding=(APP, MEM), **labelled(APP, MEM), **AHEAD)
    mem = part(needing("mem", "ofed"), replace(IN_WAVE, lanes=replace(LANES, front_value="mem-b")))
    found = order(where, pods=CURRENT, mem=mem).clearance.returning(where, OFED)
    wave = names.wave_label(NAMESPACE, "mem")
    assert found.labels == {wave: "mem-b", driver_keys(APP).yields: None, driver_keys(MEM).yields: None}
    back = replace(where, labels={**where.labels, LABEL: "", wave: "mem-b"})
    assert order(back, mem=mem).clearance.returning(back, OFED).labels == {
        wave: None,
        driver_keys(APP).yields: None,
        driver_keys(MEM).yields: None,
    }


def test_one_that_has_not_yielded_and_has_to_move_yields_once_those_that_use_it_are_gone() -> None:
    """Not where one of them stays: then all come back as they can."""
    wave = names.wave_label(NAMESPACE, "mem")
    mem = part(needing("mem", "ofed"), replace(IN_WAVE, lanes=replace(LANES, front_value="mem-b")))
    where = with_loads(MEM, APP, first=OFED, yielding=(APP, MEM), **labelled(APP), **{wave: "mem-b"})
    words = f"unloading {MEM} from node-a, so that it gets the image of before"
    assert order(where, mem=mem).clearance.returning(where, OFED) == Return(words=words)
    gone = with_loads(MEM, first=OFED, yielding=(APP, MEM), **labelled(APP), **{wave: "mem-b"})
    found = order(gone, mem=mem).clearance.returning(gone, OFED)
    assert found == Return(labels={driver_keys(MEM).yields: "ofed"}, words=words)
    known = loaded.parse(LOADED)
    assert known is not None
    held = {loaded.annotation(APP): loaded.render(replace(known, held="in use"))}
    stays = replace(where, annotations={**where.annotations, **held})
    assert order(stays, mem=mem).clearance.returning(stays, OFED).labels == {wave: None, driver_keys(APP).yields: None}


def test_where_the_first_one_has_moved_another_spec_brings_nobody_back_to_what_was_before() -> None:
    """The next image is not written yet: what fits is still that of the wave which moved it."""
    where = with_loads(first=OFED, yielding=(MEM,), **labelled(MEM), **{LABEL: NEW.target_label})
    mem = part(needing("mem", "ofed"), IN_WAVE)
    found = order(where, mem=mem, ofed=part(driver("ofed"), replace(IN_WAVE, is_written=False)))
    assert found.clearance.returning(where, OFED).labels[names.wave_label(NAMESPACE, "mem")] == NEW.target_label


@pytest.mark.parametrize("state", [State.RUNNING, State.FAILED])
def test_nobody_comes_back_while_it_is_being_unloaded(state: State) -> None:
    """A pod that loads beside the unload pod would be proven by modules that are about to go."""
    where = with_loads(MEM, first=OFED, yielding=(MEM,), **labelled(MEM))
    unloading = task(UNLOAD, TARGET.short_hash, driver=MEM, state=state)
    found = order(where)
    found = seeing(found, tasks=(unloading,))
    assert bool(found.clearance.returning(where, OFED).labels) is (state is State.FAILED)
    starting = RunTask(kind=UNLOAD, driver=MEM, manifest={"spec": {"nodeName": "node-a"}})
    begins = order(where, mem=part(needing("mem", "ofed"), READY, actions=(starting,)))
    assert begins.clearance.returning(where, OFED) == Return(words=f"{MEM} is still being unloaded from node-a")


def test_an_image_of_one_that_yields_is_named_until_its_pod_has_it() -> None:
    """Nothing is pulled where its pod runs it already; for one that has yielded nothing is waited for."""
    lanes = replace(LANES, front=replace(NEW, image="next"))
    mem = part(needing("mem", "ofed"), replace(IN_WAVE, lanes=lanes))
    where = with_loads(MEM)
    assert order(where, mem=mem).images(MOVE, OFED) == {MEM: "next"}
    has_it = replace(pod(BUILT), driver=MEM, image="next")
    assert order(where, pods=(pod(BUILT), has_it), mem=mem).images(MOVE, OFED) == {}
    begun = order(with_loads(MEM, first=OFED, yielding=(MEM,), **labelled(MEM)), mem=mem)
    assert begun.images(MOVE, OFED) == {}
    assert begun.images_of_yielding() == {MEM: {"node-a": "next"}}


def test_the_node_is_held_until_they_are_proven() -> None:
    """A pod that is not there yet is waited for; one of a driver that is gone is not."""
    where = with_loads(first=OFED, yielding=(MEM, DriverKey("driverwright/gone")))
    found = order(where)
    assert found.clearance.returning(where, OFED) == Return(words=f"loading {MEM} again on node-a: no driver pod yet")
    proven = replace(pod(BUILT), driver=MEM)
    ready = replace(where, labels={**where.labels, names.ready_label(NAMESPACE, "mem"): "1.0.0"})
    assert order(ready, pods=(proven,)).clearance.returning(ready, OFED).is_over
    assert not order(where, pods=(proven,)).clearance.returning(where, OFED).is_over
    away = replace(where, labels={**where.labels, "pool": "other"})
    assert order(away).clearance.returning(away, OFED).is_over


@pytest.mark.parametrize(
    ("yielded", "pods", "expected"),
    [
        ({"node-a": True}, (), True),
        ({"node-a": False}, (pod(BUILT),), False),
        ({}, (pod(BUILT),), True),
        ({}, (pod(BUILT, proof=None, ready=False),), False),
        ({}, (), True),
    ],
    ids=["it works", "it does not", "paused, and works", "paused, and does not", "it is gone"],
)
def test_they_come_back_once_the_first_one_works(
    yielded: Mapping[str, bool], pods: tuple[DriverPod, ...], expected: bool
) -> None:
    """Or is not on the node any more."""
    where = with_loads(first=OFED, yielding=(MEM,))
    found = order(where, pods=pods, ofed=part(driver("ofed"), IN_WAVE, yielded=yielded))
    assert found.clearance.may_return(where, OFED) is expected


def test_one_that_fails_to_load_again_is_named_and_keeps_no_lock() -> None:
    """What it needs may be a replacement of a driver that both depend on."""
    where = with_loads(first=OFED, yielding=(MEM,))
    report = pod(BUILT).proof
    assert report is not None
    failed = replace(pod(BUILT), driver=MEM, proof=replace(report, result="LoadFailed", message="symbols"), ready=False)
    found = order(where, pods=(failed,)).clearance.returning(where, OFED)
    assert found == Return(words=f"loading {MEM} again on node-a: LoadFailed: symbols", has_failed=True)
    assert not order(where).clearance.returning(where, OFED).has_failed


def test_a_driver_that_both_depend_on_takes_the_record_over() -> None:
    """With those that yield already: none of them comes back in between."""
    where = with_loads(MEM, first=MEM, yielding=(APP,), **{driver_keys(APP).yields: "mem"})
    found = order(where).clearance.clearing(where, OFED, MOVE)
    assert (found.record, found.label) == (Yielding(first=OFED, drivers=(APP, MEM)), driver_keys(APP).yields)
