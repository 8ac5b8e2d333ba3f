"""driver-builder reads what a device agent asks it to drain, and the agent hears its answer, whatever stands there."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_agent.mig.node_write import drain_failure, drain_request
from device_agent.mig.values import Holding
from device_agent.node.mig_on_node import parse_mig
from driver_builder.rollout.drain_request import parse_drain_request
from driver_builder.snapshot.inventory import read_node
from kube_api import names
from kube_api.drain_contract import MAX_PODS, MAX_REQUEST, DrainAnswer, DrainState, digest_of, render_answer

HOSTILE = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=60)
"""Halves of characters as well, which JSON may have and no encoding has."""


@given(HOSTILE)
@example("\ud800")
@example("\\ud800")
@example("a" * (MAX_REQUEST - 1) + "\ud800b")
@example("b" * (MAX_REQUEST + 100))
def test_an_answer_to_any_request_is_heard(text: str) -> None:
    """Each program reads the Node with its own bounds, and both name the request by the same digest."""
    annotations = {names.DRAIN_REQUEST_ANNOTATION: text}
    obj = {"metadata": {"name": "node-a", "annotations": annotations}}
    seen = read_node(obj).annotations[names.DRAIN_REQUEST_ANNOTATION]
    answer = DrainAnswer(state=DrainState.FAILED, message="a budget", request=digest_of(seen))
    annotations[names.DRAIN_STATE_ANNOTATION] = render_answer(answer)
    assert drain_failure(parse_mig(obj)) == "a budget"


@pytest.mark.parametrize(("length", "least"), [(1, MAX_PODS), (250, 200)], ids=["short names", "the longest names"])
def test_a_request_for_many_pods_is_one_that_can_be_read(length: int, least: int) -> None:
    """It names as many as fit into it; the others are asked for with the next one."""
    users = [Holding(f"{'n' * 63}/{number:03}{'p' * length}", "nvidia.com/gpu") for number in range(400)]
    text = drain_request(users, 1800)
    read = parse_drain_request(text)
    assert len(text) <= MAX_REQUEST
    assert least <= len(read.pods) <= MAX_PODS
    assert read.pods <= {tuple(one.pod.split("/")) for one in users}
    assert (read.resources, read.deadline_seconds) == (("nvidia.com/gpu",), 1800.0)
