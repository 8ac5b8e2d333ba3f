"""What the agent may change of a Node, for an admission policy: nothing. It speaks to the kubelet alone."""

from kube_api.node_policy import NodeRights

PROGRAM = "device-agent"


def node_rights() -> NodeRights:
    """Return the rights of the agent's service account, which has no role, and its pods no token."""
    return NodeRights(program=PROGRAM, own_node=True)
