"""Whether the agent's own Node is followed: with a token, and where the Node's name is known."""

import logging
from collections.abc import Callable, Mapping

from device_agent.node.asked import Asked
from device_agent.node.connect import connect_with_token
from device_agent.node.own_node import OwnNode
from kube_api.names import GPU_PROFILE_LABEL, MIG_CONFIG_LABEL

log = logging.getLogger(__name__)


def own_node(
    name: str,
    environment: Mapping[str, str],
    on_asked: Callable[[Asked], None] | None,
    on_mig: Callable[[], None] | None,
) -> OwnNode | None:
    """Make what follows a Node; without its name or a token None, which the log says once for each label.

    ``on_asked``, ``on_mig``: as :class:`OwnNode` has them.
    """
    client = connect_with_token(environment) if name else None
    if client is not None:
        return OwnNode(client, name, on_asked, on_mig=on_mig)
    why = "there is no token of a service account, or there is a proxy" if name else "NODE_NAME is not set"
    for what, label, follows in (
        ("profiles", GPU_PROFILE_LABEL, on_asked is not None),
        ("MIG", MIG_CONFIG_LABEL, on_mig is not None),
    ):
        if follows:
            log.info("%s: the Node's label %s is not followed: %s", what, label, why)
    return None
