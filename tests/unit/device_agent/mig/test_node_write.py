"""What is written into a Node: only what differs, in one patch, and never what is somebody else's."""

import json
from hashlib import sha256

import pytest

from device_agent.mig.node_write import (
    FAILED,
    PENDING,
    SUCCESS,
    Said,
    drain_failure,
    drain_request,
    renewal_of,
    write_of,
)  # fmt: skip
from device_agent.mig.record import Record, dump_record
from device_agent.mig.values import Holding, NodeMig
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_REQUIRED_LABEL,
)  # fmt: skip
from kube_api.node_lock import render_lock

NOW = 1_800_000_000.0
RECORD = Record(asked="a", message="no room")
OURS, THEIRS = (render_lock(holder, "boot", NOW) for holder in ("device-agent", "ns/edu"))


def test_what_the_node_says_already_is_not_written() -> None:
    """Also not the lock, until it is due."""
    node = NodeMig(asked="a", state=PENDING, record=dump_record(RECORD), lock=OURS, drain_request="r")
    said = Said(state=PENDING, record=RECORD, locks=True, request="r")
    assert write_of(node, said, "boot", NOW + 299) is None
    renewed = write_of(node, said, "boot", NOW + 300)
    assert renewed is not None
    assert renewed.annotations.keys() == {LOCK_ANNOTATION}
    assert renewal_of(node, "boot", NOW + 299) is None
    assert renewal_of(node, "another", NOW) is not None
    assert renewal_of(NodeMig(lock=THEIRS), "boot", NOW + 300) is None


def test_the_end_gives_all_back_in_one_patch() -> None:
    """Of labels that are paused by others, and of a lock of others, nothing is touched."""
    node = NodeMig(
        asked="a", state="rebooting", record="x", lock=OURS, drain_request="r", reboot_required="mig",
        deploy={"nvidia.com/gpu.deploy.a": PAUSED_FOR_MIG_CHANGE, "nvidia.com/gpu.deploy.b": "false",
                "nvidia.com/gpu.deploy.c": "paused-for-driver-upgrade"}, resource_version="7",
    )  # fmt: skip
    write = write_of(node, Said(state=SUCCESS, record=Record(asked="a", applied="a")), "boot", NOW)
    assert write is not None
    assert write.labels == {
        MIG_STATE_LABEL: SUCCESS, REBOOT_REQUIRED_LABEL: None, "nvidia.com/gpu.deploy.a": "true"
    }  # fmt: skip
    assert write.annotations[LOCK_ANNOTATION] is None
    assert write.annotations[DRAIN_REQUEST_ANNOTATION] is None
    assert write.resource_version == "7"
    others = write_of(NodeMig(lock=THEIRS, reboot_required="kernel"), Said(state=SUCCESS, record=None), "boot", NOW)
    assert others is not None
    assert (others.annotations, others.labels) == ({}, {MIG_STATE_LABEL: SUCCESS})


def test_a_failure_is_an_event_once() -> None:
    """Not again while the Node shows it."""
    said = Said(state=FAILED, record=RECORD)
    write = write_of(NodeMig(asked="a"), said, "boot", NOW)
    assert write is not None
    assert write.event == "no room"
    shown = NodeMig(asked="a", state=FAILED, record=write.annotations[MIG_ANNOTATION], lock=OURS)
    released = write_of(shown, said, "boot", NOW)
    assert released is not None
    assert released.event is None


def test_a_request_names_pods_once_and_what_they_have() -> None:
    """A pod without a name is waited for, and not asked for."""
    users = [Holding("b/x", "nvidia.com/gpu"), Holding("a/y", "nvidia.com/gpu"), Holding("", "nvidia.com/other")]
    assert json.loads(drain_request(users, 1800)) == {
        "pods": ["a/y", "b/x"], "resources": ["nvidia.com/gpu"], "deadline": "30m"
    }  # fmt: skip
    assert json.loads(drain_request(users, 90))["deadline"] == "90s"


DIGEST = sha256(b"asked").hexdigest()[:16]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (None, None),
        ("{", None),
        ("[]", None),
        (json.dumps({"state": "failed", "message": "a budget", "request": DIGEST}), "a budget"),
        (json.dumps({"state": "failed", "request": DIGEST}), "driver-builder does not say why"),
        (json.dumps({"state": "failed", "message": "a budget", "request": "of another request"}), None),
        (json.dumps({"state": "draining", "message": "a budget", "request": DIGEST}), None),
    ],
)
def test_the_answer_to_this_request_counts(answer: str | None, failure: str | None) -> None:
    """One to an earlier request says nothing."""
    assert drain_failure(NodeMig(drain_request="asked", drain_state=answer)) == failure
