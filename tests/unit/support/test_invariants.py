"""Each invariant of worlds finds a journal made by hand that breaks it, and passes the same one without the fault."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.objects import manifests
from kube_api import names
from kube_api.client import Object
from kube_api.node_lock import render_lock
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS
from tests.support.driver_builder.invariants import AGENT, INVARIANTS, examine
from tests.support.driver_builder.journal import Journal, Kernel, State, Write

NAMESPACE, POOL, BOOT, KERNEL = "driverwright", {"pool": "edu"}, "boot", "6.1.0-1"
OLD, NEW = "r.io/edu@sha256:a", "r.io/edu@sha256:b"
FPGA = "example.com/fpga"
READY = names.ready_label(NAMESPACE, "edu")
Place = tuple[str, Object]


def driver(name: str = "edu", *, status: Object | None = None, deleted: bool = False, **spec: Any) -> Place:
    """Make a DriverContainer."""
    metadata = {"name": name, "namespace": NAMESPACE, **({"deletionTimestamp": "now"} if deleted else {})}
    source = {"configMap": {"name": f"{name}-source"}}
    spec = {"image": f"r.io/{name}", "version": "1", "nodeSelector": POOL, "module": {"names": [f"{name}drv"]},
            "source": source, **spec}  # fmt: skip
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)
    return path, {"metadata": metadata, "spec": spec, "status": status}


def source(text: str, name: str = "edu") -> Place:
    """Make what a driver is built of."""
    return CONFIG_MAPS.path(namespace=NAMESPACE, name=f"{name}-source"), {
        "metadata": {"name": f"{name}-source"}, "data": {"x.c": text}
    }  # fmt: skip


def node(
    name: str = "node-0", *, holder: str = f"{NAMESPACE}/edu", taint: bool = True, labels: Mapping[str, str] = POOL,
    annotations: Mapping[str, str] | None = None, **spec: Any,
) -> Place:  # fmt: skip
    """Make a Node; by default the driver has its lock, and its taint is there."""
    lock = {names.LOCK_ANNOTATION: render_lock(holder, BOOT, 0.0)} if holder else {}
    taints = [{"key": names.UPGRADING_TAINT}] if taint else []
    metadata = {"name": name, "uid": name, "labels": dict(labels), "annotations": {**lock, **(annotations or {})}}
    return NODES.path(name=name), {"metadata": metadata, "spec": {"taints": taints, **spec}}


def _template(image: str, identity: str, name: str) -> Object:
    labels = {manifests.DRIVER_LABEL: name, manifests.TARGET_LABEL: "t"}
    annotations = {
        manifests.MODULES_ANNOTATION: json.dumps({f"{name}drv": identity}),
        manifests.FINGERPRINT_ANNOTATION: image,
        manifests.KERNEL_ANNOTATION: KERNEL,
        manifests.VERSION_ANNOTATION: "1",
    }
    metadata = {"labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeSelector": POOL, "containers": [{"name": "hold", "image": image}]}}


def daemon_set(image: str = NEW, identity: str = "B", *, name: str = "edu", uid: str = "") -> Place:
    """Make the DaemonSet of a driver."""
    template, uid = _template(image, identity, name), uid or name
    metadata = {**template["metadata"], "name": uid, "namespace": NAMESPACE, "uid": uid}
    return DAEMON_SETS.path(namespace=NAMESPACE, name=uid), {"metadata": metadata, "spec": {"template": template}}


def pod(
    image: str = OLD, identity: str = "A", *, on: str = "node-0", name: str = "edu", uid: str = "", why: str = "",
    deleted: bool = False, silent: bool = False,
) -> Place:  # fmt: skip
    """Make the pod of a driver, which works unless there is a reason why not."""
    template = _template(image, identity, name)
    report = {"result": "LoadFailed" if why else "Loaded", "bootID": BOOT, "message": why}
    ended = {"name": "load", "state": {"terminated": {"message": json.dumps(report)}}}
    ready = [{"type": "Ready", "status": "False" if why else "True"}]
    metadata = {**template["metadata"], "name": f"{uid or name}-{on}", "namespace": NAMESPACE,
                "uid": f"{uid or name}-{on}", "ownerReferences": [{"uid": uid or name}],
                **({"deletionTimestamp": "now"} if deleted else {})}  # fmt: skip
    made = {"metadata": metadata, "spec": {**template["spec"], "nodeName": on}}
    status = {} if silent else {"conditions": ready, "initContainerStatuses": [ended]}
    return PODS.path(namespace=NAMESPACE, name=metadata["name"]), {**made, "status": status}


def pulled(image: str = NEW, on: str = "node-0") -> Place:
    """Make a pod that has brought an image."""
    path = PODS.path(namespace=NAMESPACE, name=f"pull-{on}")
    metadata = {"name": f"pull-{on}", "namespace": NAMESPACE, "uid": f"pull-{on}"}
    spec = {"nodeName": on, "containers": [{"name": "pull", "image": image}]}
    return path, {"metadata": metadata, "spec": spec, "status": {"phase": "Succeeded"}}


def user(on: str = "node-0") -> Place:
    """Make a pod that uses the device."""
    spec = {"nodeName": on, "containers": [{"resources": {"requests": {FPGA: "1"}}}]}
    return PODS.path(namespace="apps", name="web"), {"metadata": {"name": "web", "namespace": "apps"}, "spec": spec}


def state(*places: Place, live: Mapping[str, str] | None = None, **fields: Any) -> State:
    """Make a state; each node has the same modules live."""
    objects = dict(places)
    on = [obj["metadata"]["name"] for path, obj in places if "/nodes/" in path]
    return State(objects=objects, kernels={name: Kernel(boot=BOOT, live=live or {}) for name in on}, **fields)


def after(before: State, write: Write, *places: Place) -> State:
    """Make the state after a write."""
    gone = {write.path} if write.method == "DELETE" else set()
    objects = {path: obj for path, obj in before.objects.items() if path not in gone}
    return replace(before, objects={**objects, **dict(places)}, write=write)


def journal(*states: State, **facts: Any) -> Journal:
    """Make a journal."""
    return Journal(states=states, **facts)


DRAINED = driver(rollout={"drain": {"resources": [FPGA], "pauseLabels": []}})
EDU = (driver(), daemon_set(), pod(), pulled(), source("int x;"))


def take(*places: Place, taken: Place | None = None, begin: State | None = None) -> Journal:
    """Let the controller delete pods that work, one after the other."""
    states = [*([begin] if begin else []), state(*places)]
    for path in [path for path, _ in ([taken] if taken else [place for place in places if "Ready" in f"{place}"])]:
        states.append(after(states[-1], Write(method="DELETE", path=path)))
    return journal(*states)


def loaded(*places: Place, live: Mapping[str, str], **facts: Any) -> Journal:
    """Let a pod's loader report, after which these modules are live; before it the old one was."""
    silent = [(path, {**obj, "status": {}} if "initContainerStatuses" in (obj.get("status") or {}) else obj)
              for path, obj in places]  # fmt: skip
    return journal(state(*silent, live={"edudrv": "A", "ofeddrv": "X"}), state(*places, live=live), **facts)


def patch_node(labels: Object, name: str = "node-0") -> Write:
    """Make a patch of a Node's labels."""
    return Write(method="PATCH", path=NODES.path(name=name), body={"metadata": {"labels": labels}})


def written(before: State, write: Write, *places: Place) -> Journal:
    """Let the controller write once."""
    return journal(before, after(before, write, *places))


def applied(*places: Place, kept: tuple[Place, ...] = ()) -> Journal:
    """Let the controller write the next image into the DaemonSet of one that works."""
    before = state(node(), *places, daemon_set(OLD, "A"), pod(), *kept)
    return written(before, Write(method="APPLY", path=daemon_set()[0]), daemon_set())


def evicted(*places: Place) -> Journal:
    """Let the controller evict the pod that uses the device."""
    return written(state(*places, user()), Write(method="POST", path=f"{user()[0]}/eviction"))


def ends(*places: Place, **fields: Any) -> Journal:
    """Let the world be at rest, with nothing in the way."""
    return journal(state(*places, **{"is_rest": True, "is_healed": True, "seen": 0, **fields}))


def asked(pods: str) -> dict[str, str]:
    """Make what an agent asks for."""
    return {names.DRAIN_REQUEST_ANNOTATION: json.dumps({"pods": [pods], "resources": [FPGA]})}


REFUSED = driver(status={"rollout": {"targets": {"t": NEW}, "refused": {"t": "LoadFailed"}}})
OTHER = (driver("other"), daemon_set("r.io/other@b", "N", name="other"), pod("r.io/other@a", "O", name="other"))
CHANGED = state(node(), *EDU, *OTHER, source("int y;", "other"), images={"edu": frozenset({"A"})})
UNCHANGED = state(node(), *EDU, *OTHER, source("int x;", "other"))
SYMBOLS: dict[str, Any] = {"symbols": {"A": frozenset({"X"})}, "users": {"ofeddrv": "edudrv"}}
PROVEN = {**POOL, READY: "1"}
IN_ORDER = (driver(), daemon_set(OLD, "A"), pod(), node(holder="", taint=False, labels=PROVEN))
STRANGER = node("outside", holder="", taint=False, labels={"pool": "web"})

GOOD: dict[str, tuple[Journal, ...]] = {
    "under_its_lock": (take(node(), *EDU), loaded(node(), *EDU, live={"edudrv": "B"})),
    "within_its_budget": (take(node(), *EDU),),
    "not_under_its_users": (take(node(), *EDU, DRAINED),),
    "not_where_an_admin_forbids": (
        take(node(), *EDU),
        take(node(unschedulable=True, annotations={names.REBUILD_ANNOTATION: "1"}), *EDU),
    ),
    "one_driver_at_a_time": (take(node(), *EDU, *OTHER, taken=pod()),),
    "the_next_image_is_there_first": (take(node(labels=PROVEN), *EDU),),
    "no_module_over_foreign_symbols": (
        loaded(node(), driver(), pod(), live={"edudrv": "A", "ofeddrv": "X"}, **SYMBOLS),
    ),
    "nothing_refused_where_another_works": (loaded(node(), REFUSED, daemon_set(), pod(), live={"edudrv": "A"}),),
    "the_last_good_image_can_be_had": (applied(driver(), kept=(daemon_set(OLD, "A", uid="edu-b"),)),),
    "what_lies_below_or_beside_a_change_is_not_touched": (journal(UNCHANGED, CHANGED),),
    "ready_only_with_a_proof_of_this_boot": (written(state(node(), *EDU), patch_node({READY: "1"})),),
    "strangers_are_left_alone": (written(state(node(), *EDU, STRANGER), patch_node({READY: None}, "outside")),),
    "nothing_that_is_there_is_built": (journal(state(), state(started=("edu:1",))),),
    "only_what_was_asked_for_is_evicted": (
        evicted(node(), DRAINED),
        evicted(node(holder=AGENT, annotations=asked("apps/web")), driver()),
    ),
    "all_is_in_order_in_the_end": (ends(*IN_ORDER),),
    "at_rest_nothing_is_written": (ends(*IN_ORDER),),
}
"""By invariant, journals in which its premise occurs and it holds."""

BAD: tuple[tuple[str, str, Journal], ...] = (
    ("under_its_lock", "nobody has it", take(node(holder=""), *EDU)),
    ("under_its_lock", "another driver has it", take(node(holder=f"{NAMESPACE}/other"), *EDU, driver("other"))),
    ("under_its_lock", "loaded without it", loaded(node(holder=""), *EDU, live={"edudrv": "B"})),
    ("within_its_budget", "a second node", take(node(), node("node-1"), *EDU, pod(on="node-1"))),
    (
        "within_its_budget",
        "two are loaded at once",
        loaded(node(), node("node-1"), *EDU, pod(on="node-1"), live={"edudrv": "B"}),
    ),
    ("not_under_its_users", "taken under a user", take(node(), *EDU, DRAINED, user())),
    ("not_under_its_users", "without the taint", take(node(taint=False), *EDU, DRAINED)),
    ("not_under_its_users", "loaded under a user", loaded(node(), *EDU, DRAINED, user(), live={"edudrv": "B"})),
    ("not_where_an_admin_forbids", "left out", take(node(annotations={names.SKIP_ROLLOUT_ANNOTATION: "true"}), *EDU)),
    ("not_where_an_admin_forbids", "cordoned", take(node(unschedulable=True), *EDU)),
    ("one_driver_at_a_time", "two", take(node(), *EDU, *OTHER)),
    ("the_next_image_is_there_first", "not pulled", take(node(labels=PROVEN), driver(), daemon_set(), pod())),
    (
        "no_module_over_foreign_symbols",
        "it is live",
        loaded(node(), driver(), pod(), live={"edudrv": "A", "ofeddrv": "Y"}, **SYMBOLS),
    ),
    *(
        (
            "no_module_over_foreign_symbols",
            f"the kernel says {why}",
            loaded(node(), driver(), pod(why=why), live={"ofeddrv": "X"}, **SYMBOLS),
        )
        for why in ("edudrv disagrees about version of symbol", "module edudrv is in use (used by modules x)")
    ),
    (
        "nothing_refused_where_another_works",
        "it comes",
        loaded(node(), REFUSED, daemon_set(), pod(NEW, "B"), live={"edudrv": "B"}),
    ),
    ("the_last_good_image_can_be_had", "overwritten", applied(driver())),
    (
        "the_last_good_image_can_be_had",
        "deleted beside the next one",
        written(
            state(node(), driver(), daemon_set(OLD, "A"), pod(), daemon_set(uid="edu-b")),
            Write(method="DELETE", path=daemon_set()[0]),
        ),
    ),
    (
        "what_lies_below_or_beside_a_change_is_not_touched",
        "beside",
        take(*CHANGED.objects.items(), begin=UNCHANGED, taken=pod()),
    ),
    ("ready_only_with_a_proof_of_this_boot", "no pod", written(state(node(), driver()), patch_node({READY: "1"}))),
    (
        "ready_only_with_a_proof_of_this_boot",
        "another version",
        written(state(node(), *EDU), patch_node({READY: "2"})),
    ),
    (
        "ready_only_with_a_proof_of_this_boot",
        "of another boot",
        written(replace(state(node(), *EDU), kernels={"node-0": Kernel(boot="another")}), patch_node({READY: "1"})),
    ),
    (
        "ready_only_with_a_proof_of_this_boot",
        "at rest",
        ends(driver(), node(holder="", taint=False, labels={**POOL, READY: "1"})),
    ),
    (
        "strangers_are_left_alone",
        "a label",
        written(state(node(), *EDU, STRANGER), patch_node({READY: "1"}, "outside")),
    ),
    (
        "strangers_are_left_alone",
        "a label that somebody else wrote",
        ends(*IN_ORDER, node("outside", holder="", taint=False, labels={READY: "1"})),
    ),
    ("strangers_are_left_alone", "a pod", journal(state(node(), *EDU, STRANGER, pod(on="outside")))),
    (
        "nothing_that_is_there_is_built",
        "again",
        journal(state(images={"edu:1": frozenset()}), state(started=("edu:1",))),
    ),
    ("only_what_was_asked_for_is_evicted", "without the taint", evicted(node(taint=False), DRAINED)),
    ("only_what_was_asked_for_is_evicted", "without the lock", evicted(node(holder=""), DRAINED)),
    ("only_what_was_asked_for_is_evicted", "without a drain", evicted(node(), driver())),
    (
        "only_what_was_asked_for_is_evicted",
        "another pod than an agent names",
        evicted(node(holder=AGENT, annotations=asked("apps/train")), driver()),
    ),
    ("all_is_in_order_in_the_end", "no pod", ends(driver(), daemon_set(), node(holder="", taint=False))),
    ("all_is_in_order_in_the_end", "a lock", ends(*IN_ORDER[:3], node(taint=False))),
    ("all_is_in_order_in_the_end", "a taint", ends(*IN_ORDER[:3], node(holder=""))),
    (
        "all_is_in_order_in_the_end",
        "a label of a wave",
        ends(*IN_ORDER[:3], node(holder="", taint=False, labels={**POOL, names.wave_label(NAMESPACE, "edu"): "t"})),
    ),
    (
        "all_is_in_order_in_the_end",
        "a wave",
        ends(*IN_ORDER[1:], driver(status={"rollout": {"phase": "Rolling", "targets": {}}})),
    ),
    (
        "at_rest_nothing_is_written",
        "a label",
        journal(replace(state(*IN_ORDER), write=patch_node({})), state(*IN_ORDER, is_rest=True)),
    ),
)
"""Invariant, how it is broken, and a journal that breaks it."""


@pytest.mark.parametrize(
    ("name", "made"), [pytest.param(name, made, id=name) for name, every in GOOD.items() for made in every]
)
def test_a_journal_in_which_an_invariant_holds(name: str, made: Journal) -> None:
    """Its premise occurs, and nothing is found."""
    found = examine(made)
    assert found.occurred[name]
    assert [item for item in found.violations if item.name == name] == []


@pytest.mark.parametrize(("name", "made"), [pytest.param(name, made, id=f"{name}: {how}") for name, how, made in BAD])
def test_a_journal_that_breaks_an_invariant(name: str, made: Journal) -> None:
    """It is found, by name."""
    assert name in {found.name for found in examine(made).violations}


def test_every_invariant_has_a_sentence_and_both_kinds_of_journals() -> None:
    """None asserts nothing."""
    assert GOOD.keys() == {name for name, *_ in BAD} == INVARIANTS.keys()
    assert [name for name, cases in INVARIANTS.items() if not (cases.__doc__ or "").endswith(".")] == []
