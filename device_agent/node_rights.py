"""What the agent may change of a Node, for an admission policy: nothing, or the answer about its profile."""

from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_STATE_LABEL
from kube_api.node_policy import Keys, NodeRights, text_literal

PROGRAM = "device-agent"


def node_rights() -> NodeRights:
    """Return the rights of the agent's service account, which has no role, and its pods no token."""
    return NodeRights(program=PROGRAM, own_node=True)


def answering_rights() -> NodeRights:
    """Return the rights of an account whose token the agent has where a Node's label chooses the profile."""
    return NodeRights(
        program=PROGRAM,
        labels=_only(GPU_PROFILE_STATE_LABEL),
        annotations=_only(GPU_PROFILE_ANNOTATION),
        own_node=True,
    )


def _only(key: str) -> Keys:
    condition = f"k == {text_literal(key)}"
    return Keys(change=condition, remove=condition)
