"""A publish child that is killed at any moment."""

import select
import time
from contextlib import suppress

import pytest

from kube_api.client import Client
from nfd_worker.child import spawn
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.publish_child import publish
from nfd_worker.publish.wire import UNPUBLISH, PublishAnswer, PublishRequest
from tests.support.nfd_worker.publish_child import PUBLISH_CHILD
from tests.support.nfd_worker.publishing import BARE, FULL, PUBLISHED, carried, request, without_seen


def run_child(asked: PublishRequest, *, kill_after: float | None = None) -> PublishAnswer | None:
    """Run the publish child; kill it after so many seconds, unless it has ended."""
    child = spawn(asked.to_bytes(), PUBLISH_CHILD)
    deadline = time.monotonic() + (120 if kill_after is None else kill_after)
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([child.answer_pipe], [], [], left)
        if ready and child.has_ended():
            break
    else:
        with suppress(ProcessLookupError):
            child.kill()
    return PublishAnswer.from_line(child.reap().output)


def run_whole(asked: PublishRequest) -> float:
    """Run the publish child to its end; returns how many seconds it took."""
    start = time.monotonic()
    assert without_seen(run_child(asked)) == PublishAnswer()
    return time.monotonic() - start


EVEN, ODD = range(10, 0, -2), range(9, 0, -2)


@pytest.mark.parametrize(
    ("action", "tenths"),
    [
        pytest.param("publish", EVEN[::2], id="publish"),
        pytest.param("publish", EVEN[1::2], id="publish-others", marks=pytest.mark.long),
        pytest.param(UNPUBLISH, ODD, id="unpublish", marks=pytest.mark.long),
        pytest.param("publish", ODD, id="publish-between", marks=pytest.mark.long),
        pytest.param(UNPUBLISH, EVEN, id="unpublish-between", marks=pytest.mark.long),
    ],
)
def test_a_child_killed_at_any_moment_leaves_nothing_that_the_next_does_not_fix(
    root: Client, worker: Client, node: str, kubeconfig: str, *, action: str, tenths: range
) -> None:
    """Killed sooner and sooner, from its usual end on, which is as late as the machine is busy just then."""
    usual = run_whole(request(node, kubeconfig=kubeconfig))
    ends: set[bool] = set()
    for tenth in tenths:
        publish(request(node, NodeContent() if action == "publish" else FULL), worker)
        answer = run_child(request(node, kubeconfig=kubeconfig, action=action), kill_after=usual * tenth / 10)
        ends.add(answer is None)
        usual = run_whole(request(node, kubeconfig=kubeconfig, action=action))
        assert carried(root, node) == (PUBLISHED if action == "publish" else BARE)
    assert True in ends, "none was killed early"
