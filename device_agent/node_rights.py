"""What the agent may change of a Node, for an admission policy: nothing, or answers about profile and MIG layout."""

from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    GPU_PROFILE_ANNOTATION,
    GPU_PROFILE_STATE_LABEL,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_STATE_LABEL,
    MIG_STATES,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_FOR_MIG,
    REBOOT_REQUIRED_LABEL,
)
from kube_api.node_policy import Keys, NodeRights, any_of, becomes, begins_with, is_key, is_there, was

PROGRAM = "device-agent"


def node_rights() -> NodeRights:
    """Return the rights of the agent's service account, which has no role, and its pods no token."""
    return NodeRights(program=PROGRAM, own_node=True)


def answering_rights(*, changes_mig: bool = False) -> NodeRights:
    """Return the rights of an account whose token the agent has where a Node's labels choose what its GPUs are.

    ``changes_mig``: not only the profile by which they are shared, but their MIG layout.
    """
    profile_state, profile = is_key(GPU_PROFILE_STATE_LABEL), is_key(GPU_PROFILE_ANNOTATION)
    labels, annotations = Keys(change=profile_state, remove=profile_state), profile
    if changes_mig:
        labels = _with_mig(profile_state)
        annotations = any_of(profile, *map(is_key, (MIG_ANNOTATION, LOCK_ANNOTATION, DRAIN_REQUEST_ANNOTATION)))
    return NodeRights(
        program=PROGRAM, labels=labels, annotations=Keys(change=annotations, remove=annotations), own_node=True
    )


def _with_mig(profile_state: str) -> Keys:
    """Add the labels of a MIG change, by their values: what others say by the same labels is left to them."""
    state, reboot, deploy = is_key(MIG_STATE_LABEL), is_key(REBOOT_REQUIRED_LABEL), begins_with(GPU_DEPLOY_PREFIX)
    pauses = f"{is_there('labels')} && {becomes('labels', PAUSED_FOR_MIG_CHANGE)}"
    return Keys(
        change=any_of(
            profile_state,
            f"{state} && {becomes('labels', *MIG_STATES)}",
            f"{reboot} && {becomes('labels', REBOOT_FOR_MIG)}",
            f"{deploy} && {pauses}",
            f"{deploy} && {was('labels', PAUSED_FOR_MIG_CHANGE)}",
        ),
        remove=any_of(profile_state, state, f"{reboot} && {was('labels', REBOOT_FOR_MIG)}"),
    )
