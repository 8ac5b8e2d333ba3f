"""Whether the agent's own Node is followed: with a token, and where the Node's name is known."""

import logging
from collections.abc import Callable, Mapping

from device_agent.node.asked import Asked
from device_agent.node.connect import connect_with_token
from device_agent.node.own_node import OwnNode
from kube_api.names import GPU_PROFILE_LABEL

log = logging.getLogger(__name__)


def own_node(name: str, environment: Mapping[str, str], on_asked: Callable[[Asked], None]) -> OwnNode | None:
    """Make what follows a Node; without its name or a token None, which the log says once."""
    client = connect_with_token(environment) if name else None
    if client is not None:
        return OwnNode(client, name, on_asked)
    why = "there is no token of a service account, or there is a proxy" if name else "NODE_NAME is not set"
    log.info("profiles: the Node's label %s is not followed: %s", GPU_PROFILE_LABEL, why)
    return None
