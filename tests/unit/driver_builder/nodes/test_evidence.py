"""What a driver's pods say of a node: proven, refuted, or nothing that counts."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.nodes import evidence
from driver_builder.nodes.evidence import Finding, is_current, judge
from driver_builder.objects.loaded import Load, Loaded, annotation, render
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import DriverPod
from tests.support.driver_builder.factories import (
    BOOT_ID,
    GONE,
    IDENTITY,
    KERNEL,
    NOW,
    OLD,
    OTHER_KERNEL,
    daemon_set,
    driver,
    loaded,
    node,
    pod,
    snapshot,
)
from tests.support.driver_builder.plans import READY_LABEL

SEEN = snapshot()
HERE = f"{BOOT_ID} {KERNEL}"


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        pytest.param({}, Finding.WORKS, "", id="proven and ready"),
        pytest.param({"ready": False}, Finding.SILENT, "not ready", id="not ready"),
        pytest.param({"ready": False, "message": "CrashLoopBackOff"}, Finding.SILENT, "CrashLoopBackOff", id="crashes"),
        pytest.param({"deleting": True}, Finding.SILENT, "is being replaced", id="leaves"),
        pytest.param({"proof": None}, Finding.NOTHING, "has not reported yet", id="loads"),
        pytest.param({"proof": None, "message": "ErrImagePull"}, Finding.NOTHING, "ErrImagePull", id="pulls"),
        pytest.param({"contrary": GONE}, Finding.REFUTED, "NotLive: module edudrv is not live", id="removed by hand"),
        pytest.param({"contrary": replace(GONE, message="")}, Finding.REFUTED, "NotLive", id="without words"),
        pytest.param({"proof": loaded(boot_id="x")}, Finding.REFUTED, "before the node's last boot", id="another boot"),
        pytest.param({"proof": loaded(OTHER_KERNEL)}, Finding.REFUTED, "loaded on kernel", id="another kernel"),
        pytest.param({"expected": {"edudrv": "FF"}}, Finding.REFUTED, "module edudrv is", id="another build"),
    ],
)
def test_a_pod_is_judged(changes: dict[str, Any], expected: Finding, words: str) -> None:
    """Only what it reports of this boot and kernel counts, for as for against."""
    finding, why = judge(node(), replace(pod(SEEN), **changes))
    assert finding is expected
    assert words in why


def test_a_node_without_a_kernel_label_runs_what_it_ran() -> None:
    """Labels that are gone, or damaged, are no evidence of another kernel."""
    assert judge(node(kernel=None), pod(SEEN))[0] is Finding.WORKS
    assert judge(node(kernel="not a kernel"), pod(SEEN))[0] is Finding.WORKS


def found(*pods: DriverPod, **changes: Any) -> evidence.NodeEvidence:
    """Weigh pods of a node that has a ready label of this boot."""
    there = node(**{"labels": {READY_LABEL: "0.1"}, "proven_on": HERE, **changes})
    sets = {item.target: item for item in (daemon_set(SEEN),)}
    return evidence.of_node(record_of(there, driver().key), pods, sets)


def test_proof_sets_the_label_and_the_boot() -> None:
    """Whatever another pod says that is on its way out."""
    said = found(pod(SEEN, deleting=True, contrary=GONE), pod(SEEN), labels={})
    assert (said.version, said.works, said.proven_on) == ("1.0.0", True, HERE)


@pytest.mark.parametrize(
    ("pods", "nodes", "remembered", "expected"),
    [
        pytest.param({}, {}, "", "1.0.0", id="what the current image would give"),
        pytest.param({"fingerprint": OLD}, {}, "", "0.9", id="something else"),
        pytest.param({"fingerprint": OLD}, {}, IDENTITY, "0.1", id="something else, as it was labelled"),
        pytest.param({"fingerprint": OLD}, {}, "FF", "0.9", id="something else than was labelled"),
        pytest.param({"fingerprint": OLD}, {"labels": {}}, IDENTITY, "0.9", id="something else, not labelled"),
        pytest.param({"fingerprint": OLD}, {"proven_on": f"older {KERNEL}"}, IDENTITY, "0.9",
                     id="something else, labelled on another boot"),
    ],
)  # fmt: skip
def test_the_version_is_that_of_what_the_node_has(
    pods: dict[str, Any], nodes: dict[str, Any], remembered: str, expected: str
) -> None:
    """A new version of the same modules needs no new pod, and the label that was moved to it does not move back."""
    there = node(**{"labels": {READY_LABEL: "0.1"}, "proven_on": HERE, **nodes})
    load = Load(target="0a1b2c3d", kernel=KERNEL, boot_id=BOOT_ID, modules=(("edudrv", remembered),))
    memory = {annotation(SEEN.drivers[0].key): render(Loaded(loads=(load,)))} if remembered else {}
    there = replace(there, annotations={**there.annotations, **memory})
    sets = {item.target: item for item in (daemon_set(SEEN),)}
    said = evidence.of_node(record_of(there, driver().key), [pod(SEEN, version="0.9", **pods)], sets)
    assert said.version == expected


def test_no_answer_leaves_the_label_as_it_is() -> None:
    """Silent, or without any pod: its own value, and since when."""
    said = found(pod(SEEN, ready=False, unready_since=NOW - 60))
    assert (said.version, said.works, said.proven_on, said.silent_since) == ("0.1", False, HERE, NOW - 60)
    for pods in ((), (pod(SEEN, proof=None),), (pod(SEEN, deleting=True),)):
        assert found(*pods).version == "0.1"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"proven_on": None}, id="never proven"),
        pytest.param({"proven_on": f"older {KERNEL}"}, id="proven on another boot"),
        pytest.param({"proven_on": f"{BOOT_ID} {OTHER_KERNEL}"}, id="proven on another kernel"),
        pytest.param({"proven_on": BOOT_ID}, id="damaged"),
        pytest.param({"labels": {}}, id="no label"),
    ],
)
def test_a_label_that_nothing_backs_is_not_kept(changes: dict[str, Any]) -> None:
    """A label without a pod counts only with the boot beside it."""
    assert found(pod(SEEN, proof=None), **changes).version is None


def test_a_node_without_a_boot_id_is_believed() -> None:
    """Where no worker says the boot, the label that was proven once stays."""
    assert found(boot_id=None).version == "0.1"


def test_contrary_evidence_wins_over_silence() -> None:
    """A label goes though another pod says nothing."""
    said = found(pod(SEEN, contrary=GONE, ready=False), pod(SEEN, ready=False, deleting=True))
    assert (said.version, said.why) == (None, "NotLive: module edudrv is not live")


@pytest.mark.parametrize(
    ("pods", "sets", "expected"),
    [
        pytest.param({}, {}, True, id="the same fingerprint"),
        pytest.param({"fingerprint": OLD}, {}, False, id="another one"),
        pytest.param({"asked": "a"}, {"asked": "a b"}, False, id="other modules of a vendor's image"),
        pytest.param({"asked": ""}, {"asked": "a b"}, True, id="a pod that does not say which"),
        pytest.param({"fingerprint": OLD}, {"kept": frozenset({OLD})}, True, id="one that is kept"),
        pytest.param({"fingerprint": "0123456789abcdef"}, {}, False, id="older form, never seen before"),
        pytest.param({"fingerprint": "0123456789abcdef"}, {"adopted": "same"}, True, id="older form, adopted"),
        pytest.param({"fingerprint": "0123456789abcdef"}, {"adopted": "v2:x"}, False, id="older form, changed since"),
        pytest.param(
            {"fingerprint": "0123456789abcdef", "expected": {"edudrv": "FF"}}, {"adopted": "same"}, False,
            id="older form, other modules",
        ),
    ],
)  # fmt: skip
def test_a_pod_is_current_as_long_as_its_node_would_get_nothing_else(
    pods: dict[str, Any], sets: dict[str, Any], expected: bool
) -> None:
    """By fingerprint; one of an older form stands until the pod's next occasion."""
    wanted = replace(daemon_set(SEEN), **sets)
    wanted = replace(wanted, adopted=wanted.adopted.replace("same", wanted.fingerprint))
    assert wanted.expected == {"edudrv": IDENTITY}
    assert is_current(pod(SEEN, **pods), wanted) is expected
