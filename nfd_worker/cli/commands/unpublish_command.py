"""``nfd-worker unpublish``: take from a Node what the worker put there, by one run of the publish child."""

import select
import sys
import time
from collections.abc import Callable

from nfd_worker.child import Child
from nfd_worker.config.config import Settings
from nfd_worker.errors import ConfigurationError
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.publisher import CHILD_DEADLINE_SECONDS, read_answer, start_child
from nfd_worker.publish.wire import UNPUBLISH, PublishAnswer, PublishRequest


def unpublish(settings: Settings, start: Callable[[bytes], Child] = start_child) -> int:
    """Remove everything of ours from the Node and print how it went; 1 when that failed.

    ``start`` starts the publish child.

    Raises:
        ConfigurationError: when the Node's name is not known.
    """
    if not settings.node_name:
        raise ConfigurationError("the node's name is not known: set --node-name or NODE_NAME")
    request = PublishRequest(settings.node_name, NodeContent(), kubeconfig=settings.kubeconfig, action=UNPUBLISH)
    answer = _ask(request, start)
    if not answer.is_published:
        sys.stderr.write(f"nfd-worker: node {settings.node_name} could not be cleaned up: {answer.error}\n")
        return 1
    done = f"node {settings.node_name}: everything that nfd-worker set is removed"
    sys.stdout.write("\n".join([done, *answer.notes]) + "\n")
    return 0


def _ask(request: PublishRequest, start: Callable[[bytes], Child]) -> PublishAnswer:
    try:
        child = start(request.to_bytes())
    except OSError as error:
        return PublishAnswer(f"cannot start the publish child: {error}", "NotStarted")
    if not _has_ended(child, time.monotonic() + CHILD_DEADLINE_SECONDS):
        child.kill()
        child.reap()
        return PublishAnswer(f"no response within {CHILD_DEADLINE_SECONDS:.0f} s: the API server is too slow", "Late")
    return read_answer(child.reap())


def _has_ended(child: Child, deadline: float) -> bool:
    poll = select.poll()
    poll.register(child.answer_pipe, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if child.has_ended():
            return True
    return False
