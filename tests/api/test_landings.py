"""Upgrades from what earlier landings left in a cluster: no node's driver is touched until somebody asks for it.

``tests/data/landings`` has such records (see ``landing_record.py``); API server, its controllers, engine and registry
are real, the kubelets are played. A pod that keeps its uid was not started anew, so nothing was loaded anew on its
node.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from driver_builder.objects import fingerprint, manifests, slots
from driver_builder.objects.slots import Place
from kube_api import names
from kube_api.resources import DAEMON_SETS, NODES, PODS
from testbed.testbed import Testbed
from tests.support.real_parts import landing_record
from tests.support.real_parts.controller_life import Json, Life, Parts
from tests.support.real_parts.history import History

BUILT_ANEW = frozenset({"1d03f49"})
"""Records whose build keys are others by now (CHANGELOG.md says why): each target's image is built once more."""
OLDEST = "1d03f49"
RECORDS = sorted(path.name for path in landing_record.FOLDER.iterdir())


@dataclass
class Upgrade:
    """What was seen of a record: ``before`` HEAD's controller was started, and then by stage.

    ``before_image`` is while an image that is built anew is not pushed; after that the nodes' operating system is
    updated under their kernel. ``pods``, ``labels`` and ``daemon_sets`` are all that there ever were until a restart
    was over.
    """

    name: str
    life: Life
    before: Json
    pods: set[object] = field(default_factory=set)
    labels: set[object] = field(default_factory=set)
    daemon_sets: set[object] = field(default_factory=set)
    before_image: Json = field(default_factory=dict)
    upgraded: Json = field(default_factory=dict)
    writes: tuple[str, ...] = ()
    writes_after_restart: tuple[str, ...] = ()
    restarted: Json = field(default_factory=dict)
    changed: Json = field(default_factory=dict)


@pytest.fixture(scope="module")
def parts(control_plane_ground: Testbed, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """An API server, an engine and a registry."""
    return Parts.on(control_plane_ground, engine_ground, tmp_path_factory.mktemp("landings"))


def _records() -> list[object]:
    """Return the records; `make test` has the oldest, whose way is the longest."""
    return [pytest.param(name, id=name, marks=[] if name == OLDEST else [pytest.mark.long]) for name in RECORDS]


@pytest.fixture(scope="module", params=_records())
def upgrade(request: pytest.FixtureRequest, parts: Parts) -> Iterator[Upgrade]:
    """Upgrade from a record to HEAD, restart HEAD, and change a parameter of the module."""
    life = landing_record.life_of(parts, request.param)
    try:
        landing_record.restore(life, parts, landing_record.FOLDER / request.param)
        seen = Upgrade(request.param, life, _seen(life, parts))
        with ExitStack() as histories:
            client, label = parts.root, names.ready_label(life.name, "edu")
            pods = History(client, PODS.path(namespace=life.name), _identity)
            labels = History(client, NODES.path(), lambda obj: _label(obj, label), label_selector=f"pool={life.name}")
            daemon_sets = History(client, DAEMON_SETS.path(namespace=life.name), _selection)
            for history in (pods, labels, daemon_sets):
                histories.enter_context(history)
            seen.pods, seen.labels, seen.daemon_sets = pods.faces, labels.faces, daemon_sets.faces
            _upgrade(life, parts, seen)
            _restart(life, parts, seen)
        life.apply("2.0.0")
        life.wait_for_version("2.0.0")
        life.settle()
        seen.changed = _seen(life, parts)
        yield seen
    finally:
        life.end()


def _upgrade(life: Life, parts: Parts, seen: Upgrade) -> None:
    life.may_push.clear()
    if seen.name in BUILT_ANEW:
        life.until("a build is verified", lambda: "verified dw_helper" in life.log())
        # The pass that began it may still be at work.
        life.rest()
    else:
        life.settle()
    seen.before_image = _seen(life, parts)
    version = {"metadata": {"labels": {names.OS_VERSION_LABEL: "13"}}}
    for letter in "ab":
        parts.root.patch(NODES.path(name=f"{life.name}-{letter}"), version)
    life.may_push.set()
    life.settle()
    seen.upgraded, seen.writes = _seen(life, parts), tuple(write.name for write in life.writes)


def _restart(life: Life, parts: Parts, seen: Upgrade) -> None:
    life.kill()
    life.settle()
    seen.restarted = _seen(life, parts)
    seen.writes_after_restart = tuple(write.name for write in life.writes[len(seen.writes) :])


def _seen(life: Life, parts: Parts) -> Json:
    """Return the objects as they are now: the DaemonSet, and its pods by name."""
    (daemon_set,) = parts.root.list(DAEMON_SETS.path(namespace=life.name)).items
    return {"daemon set": daemon_set, "pods": {pod["metadata"]["name"]: pod for pod in life.nodes.pods()}}


def _identity(obj: Json) -> object:
    return obj["metadata"]["name"], obj["metadata"]["uid"]


def _selection(obj: Json) -> object:
    return *_identity(obj), json.dumps(obj["spec"]["selector"], sort_keys=True)  # type: ignore[misc]


def _label(obj: Json, label: str) -> object:
    return obj["metadata"]["name"], obj["metadata"].get("labels", {}).get(label)


def test_no_pod_comes_or_goes(upgrade: Upgrade) -> None:
    """Neither HEAD nor the DaemonSet's controller takes or makes one, and nothing is unloaded."""
    assert len(upgrade.before["pods"]) == 2
    assert upgrade.pods == {_identity(pod) for pod in upgrade.before["pods"].values()}


def test_no_ready_label_moves(upgrade: Upgrade) -> None:
    """Workloads that wait for the label are not evicted."""
    assert upgrade.labels == {(f"{upgrade.life.name}-{letter}", "1.0.0") for letter in "ab"}


def test_daemon_sets_keep_name_and_selector(upgrade: Upgrade) -> None:
    """Another name or selector is another DaemonSet, whose pods are others."""
    assert upgrade.daemon_sets == {_selection(upgrade.before["daemon set"])}


def test_an_image_is_built_once_where_its_key_changed_and_never_else(upgrade: Upgrade) -> None:
    """A key that is the same means an image that is there."""
    builds = upgrade.writes.count("tag the image")
    assert builds == (1 if upgrade.name in BUILT_ANEW else 0)


def test_a_record_of_the_present_form_is_not_written_to(upgrade: Upgrade) -> None:
    """Its DaemonSet is what HEAD would write, the pod template included, but for what earlier ones have not."""
    if upgrade.name in BUILT_ANEW:
        assert fingerprint.is_of_this_form(_fingerprint(upgrade.upgraded))
    else:
        before = upgrade.before["daemon set"]["spec"]
        is_of_now = _of_now(upgrade, before) == before
        # The controller's own records of what is needed, and of which image reached the nodes, are no driver's.
        written = [write for write in upgrade.writes if write != "write configmaps"]
        assert written == ["write the status", *([] if is_of_now else ["write daemonsets"])]
        assert upgrade.upgraded["daemon set"]["spec"] == _of_now(upgrade, before)
        assert _fingerprint(upgrade.upgraded) == _fingerprint(upgrade.before)


def _of_now(upgrade: Upgrade, spec: Json) -> Json:
    """Add the affinity that DaemonSets have had since pods are kept from nodes that were outside the selector."""
    made = copy.deepcopy(spec)
    yields, wave = (label(upgrade.life.name, "edu") for label in (names.yield_label, names.wave_label))
    made["template"]["spec"]["affinity"] = slots.affinity(wave, "", Place.ALL, yields)
    return made


def _fingerprint(seen: Json) -> str:
    found: str = seen["daemon set"]["metadata"]["annotations"][manifests.FINGERPRINT_ANNOTATION]
    return found


def test_a_restart_writes_nothing(upgrade: Upgrade) -> None:
    """What was to be written for the upgrade was written at once."""
    assert upgrade.writes_after_restart == ()
    assert upgrade.restarted["daemon set"]["spec"] == upgrade.upgraded["daemon set"]["spec"]


def test_other_parameters_replace_every_pod(upgrade: Upgrade) -> None:
    """A node gets what somebody asks for: the upgrade did not freeze its pods."""
    before = {pod["metadata"]["uid"] for pod in upgrade.before["pods"].values()}
    changed = {pod["metadata"]["uid"] for pod in upgrade.changed["pods"].values()}
    assert len(changed) == 2
    assert not before & changed


def test_a_daemon_set_does_not_wait_for_an_image_to_lose_the_version_of_the_operating_system(upgrade: Upgrade) -> None:
    """An update of it under the running kernel would take the pods away; the version stays known by an annotation."""
    before, then = (seen["daemon set"] for seen in (upgrade.before, upgrade.before_image))
    expected = copy.deepcopy(before["spec"])
    if upgrade.name not in BUILT_ANEW:
        expected = _of_now(upgrade, expected)
    expected["template"]["spec"]["nodeSelector"].pop(names.OS_VERSION_LABEL, None)
    assert then["spec"] == expected
    assert then["metadata"]["annotations"][manifests.OS_VERSION_ANNOTATION] == "12"
