"""``nfd-worker unpublish``: take from a Node what the worker put there, by one run of the publish child."""

import select
import sys
import time

from nfd_worker.child import Child
from nfd_worker.config import Settings
from nfd_worker.errors import ConfigurationError
from nfd_worker.node_content import NodeContent
from nfd_worker.publisher import CHILD_DEADLINE_SECONDS, read_answer, start_child
from nfd_worker.wire import UNPUBLISH, PublishAnswer, PublishRequest

_NOTHING = NodeContent({}, {}, {})


def unpublish(settings: Settings) -> int:
    """Remove everything of ours from the Node and print how it went; 1 when that failed.

    Raises:
        ConfigurationError: when the Node's name is not known.
    """
    if not settings.node_name:
        raise ConfigurationError("the node's name is not known: set --node-name or NODE_NAME")
    request = PublishRequest(settings.node_name, _NOTHING, kubeconfig=settings.kubeconfig, action=UNPUBLISH)
    answer = ask(request)
    if not answer.is_published:
        sys.stderr.write(f"nfd-worker: node {settings.node_name} not cleaned up: {answer.error}\n")
        return 1
    sys.stdout.write("\n".join([f"node {settings.node_name}: all that is ours is removed", *answer.notes]) + "\n")
    return 0


def ask(request: PublishRequest) -> PublishAnswer:
    """Run the publish child and wait for its answer."""
    try:
        child = start_child(request.to_bytes())
    except OSError as error:
        return PublishAnswer(f"cannot start the publish child: {error}", "NotStarted")
    if not _has_ended(child, time.monotonic() + CHILD_DEADLINE_SECONDS):
        child.kill()
    return read_answer(child.reap())


def _has_ended(child: Child, deadline: float) -> bool:
    poll = select.poll()
    poll.register(child.answer_pipe, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if child.has_ended():
            return True
    return False
