"""What a Node says about MIG, and the patch that changes it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.node.asked import MAX_ANSWER
from device_agent.node.mig_on_node import MAX_DEPLOY, event_of, mig_patch, parse_mig
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    REBOOT_REQUIRED_LABEL,
)
from kube_api.text import MAX_TOKEN, printable
from tests.unit.device_agent.node.test_asked_and_answered import json_values, node

PLUGIN = f"{GPU_DEPLOY_PREFIX}device-plugin"
LABELS = (MIG_CONFIG_LABEL, MIG_STATE_LABEL, REBOOT_REQUIRED_LABEL, PLUGIN)
ANNOTATIONS = (MIG_ANNOTATION, LOCK_ANNOTATION, DRAIN_REQUEST_ANNOTATION, DRAIN_STATE_ANNOTATION)


def test_all_that_matters_is_read() -> None:
    """Each key to its field, and labels of the operator by their whole keys."""
    labels = {
        MIG_CONFIG_LABEL: "all-1g",
        MIG_STATE_LABEL: "pending",
        REBOOT_REQUIRED_LABEL: "mig",
        PLUGIN: "true",
        "nvidia.com/gpu.deployed": "x",
    }
    found = node(labels, {key: f"of {key}" for key in ANNOTATIONS})
    found["metadata"]["resourceVersion"] = "12"
    assert parse_mig(found) == NodeMig(
        asked="all-1g",
        state="pending",
        reboot_required="mig",
        deploy={PLUGIN: "true"},
        record=f"of {MIG_ANNOTATION}",
        lock=f"of {LOCK_ANNOTATION}",
        drain_request=f"of {DRAIN_REQUEST_ANNOTATION}",
        drain_state=f"of {DRAIN_STATE_ANNOTATION}",
        resource_version="12",
        uid="u",
    )


@pytest.mark.parametrize(
    ("labels", "asked"),
    [
        pytest.param({}, None, id="no label"),
        pytest.param({MIG_CONFIG_LABEL: ""}, "", id="an empty one"),
        pytest.param({MIG_CONFIG_LABEL: 7}, None, id="a value of a wrong type"),
        pytest.param([MIG_CONFIG_LABEL], None, id="labels of a wrong type"),
        pytest.param({f"{MIG_CONFIG_LABEL}.x": "a"}, None, id="another label"),
    ],
)
def test_what_is_asked_for(labels: object, asked: str | None) -> None:
    """Absent and empty are told apart."""
    assert parse_mig(node(labels)).asked == asked


keys = st.sampled_from((*LABELS, *ANNOTATIONS, "other"))
maps = st.dictionaries(keys, json_values | st.text(max_size=200), max_size=6) | json_values
surrogates = st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xDFFF), max_size=8)


@given(st.builds(node, maps, maps | st.dictionaries(keys, surrogates), json_values), json_values)
def test_any_node_is_read(found: dict[str, Any], version: object) -> None:
    """Bounded, and as texts that can be written again."""
    found["metadata"]["resourceVersion"] = version
    # As it comes over the wire: JSON makes one character of a pair of surrogates.
    found = json.loads(json.dumps(found))
    seen = parse_mig(found)
    short = (seen.asked, seen.state, seen.reboot_required, seen.resource_version, seen.uid, *seen.deploy.values())
    assert all(printable(text, MAX_TOKEN) == text for text in short if text is not None)
    for text in (seen.record, seen.lock, seen.drain_request, seen.drain_state):
        assert text is None or len(text.encode()) <= 4 * MAX_ANSWER
    assert event_of(NodeWrite(event="x"), seen) in ("x", None)


def test_what_is_too_long_is_cut() -> None:
    """Of annotations the beginning, of the operator's labels the first ones."""
    many = {f"{GPU_DEPLOY_PREFIX}{number:03}": "true" for number in range(2 * MAX_DEPLOY)}
    seen = parse_mig(node(many, dict.fromkeys(ANNOTATIONS, "x" * (2 * MAX_ANSWER))))
    assert list(seen.deploy) == sorted(many)[:MAX_DEPLOY]
    assert seen.record == seen.lock == "x" * MAX_ANSWER


def test_no_node_at_all_is_read() -> None:
    """Anything else than an object has nothing."""
    nodes: tuple[dict[str, Any], ...] = ({}, {"metadata": None}, {"metadata": []})
    assert [parse_mig(found) for found in nodes] == [NodeMig()] * 3


def test_a_write_is_one_patch_of_one_version() -> None:
    """With what is removed; without what it does not name."""
    write = NodeWrite(labels={MIG_STATE_LABEL: "failed", PLUGIN: None}, annotations={}, resource_version="7")
    labels = {MIG_STATE_LABEL: "failed", PLUGIN: None}
    assert mig_patch(write) == {"metadata": {"resourceVersion": "7", "labels": labels}}


@pytest.mark.parametrize(
    ("event", "record", "expected"),
    [
        pytest.param(None, None, None, id="none"),
        pytest.param("no room", None, "no room", id="a Node without a record"),
        pytest.param("no room", '{"message":"in use"}', "no room", id="another message"),
        pytest.param("no room", '{"message":"no room"}', None, id="the Node shows it"),
        pytest.param("x" * 999, json.dumps({"message": "x" * 999}), None, id="a long one that the Node shows"),
        pytest.param("no room", "{", "no room", id="no JSON"),
        pytest.param("no room", "[" * 60_000, "no room", id="deep JSON"),
        pytest.param("no room", "[]", "no room", id="no object"),
        pytest.param("no room", '{"message":1}', "no room", id="a message of a wrong type"),
        pytest.param("a\x1b[31m\nb", None, "a b", id="a terminal's sequences"),
    ],
)
def test_an_event_is_for_what_the_node_does_not_show_yet(
    event: str | None, record: str | None, expected: str | None
) -> None:
    """Also after a restart: the record is what was said last."""
    assert event_of(NodeWrite(event=event), NodeMig(record=record)) == expected
    assert event_of(NodeWrite(event=event), None) == (
        event and (expected or event_of(NodeWrite(event=event), NodeMig()))
    )
