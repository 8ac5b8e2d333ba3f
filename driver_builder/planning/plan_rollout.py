"""An image that exists: give it to exactly the nodes of its target, and count where it is proven. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from driver_builder.model import images
from driver_builder.model.image_state import Present
from driver_builder.model.reused import Reused
from driver_builder.planning import manifests
from driver_builder.planning.actions import Action, ApplyDaemonSet, ReplacePod
from driver_builder.planning.desired import Wanted
from driver_builder.planning.plan_view import DriverView, TargetPart
from driver_builder.planning.snapshot import DriverPod
from driver_builder.planning.status import Reason, TargetState
from driver_builder.spec.driver_spec import DriverSpec


def roll_out(view: DriverView, spec: DriverSpec, item: Wanted, state: Present, part: TargetPart) -> TargetPart:
    """The image exists: give it to exactly the target's nodes and count where it is proven."""
    manifest = manifests.daemon_set(
        view.driver, spec, target=item.target, image=item.image.at(state.digest), identities=identities(state.labels)
    )
    fingerprint = manifest["metadata"]["annotations"][manifests.FINGERPRINT_ANNOTATION]
    actions: list[Action] = []
    existing = view.daemon_sets.get(item.target.short_hash)
    is_current = existing is not None and existing.fingerprint == fingerprint
    # Fingerprint and image can differ: somebody may have set another image by hand.
    if existing is None or not is_current or existing.image != str(item.image.at(state.digest)):
        actions.append(
            ApplyDaemonSet(
                namespace=view.driver.namespace,
                name=manifest["metadata"]["name"],
                driver=view.driver.key,
                target=item.target.id,
                manifest=manifest,
            )
        )
    nodes = frozenset(item.nodes)
    pods = [pod for pod in view.pods.get(item.target.short_hash, ()) if pod.node in nodes]
    if is_current:
        actions += _replacements(pods, fingerprint, ready=set(part.ready), nodes=item.nodes)
    current = {pod.node for pod in pods if pod.fingerprint == fingerprint and not pod.deleting}
    done = all(node in part.ready and node in current for node in item.nodes)
    status = replace(
        part.status,
        digest=state.digest,
        key=item.request.key if item.request else "",
        state=TargetState.READY if done else TargetState.ROLLING_OUT,
        reason=Reason.ALL_NODES_READY if done else Reason.WAITING_FOR_NODES,
        message=_progress_words(item, part, current) + _reused_words(state.labels),
    )
    return replace(part, status=status, actions=tuple(actions))


def _progress_words(item: Wanted, part: TargetPart, current: set[str]) -> str:
    words = f"{len(part.ready)} of {len(item.nodes)} nodes ready"
    for node in item.nodes:
        if node not in part.ready:
            return f"{words}; {node}: {part.doubts.get(node, 'no driver pod yet')}"
        if node not in current:
            return f"{words}; {node}: runs the image before"
    return words


def _reused_words(labels: Mapping[str, str]) -> str:
    """Say whose modules are in the image, where they are another kernel's."""
    try:
        return f"; {Reused(**json.loads(labels[images.REUSED_LABEL]))}"
    except (KeyError, ValueError, TypeError):
        return ""


def _replacements(
    pods: Iterable[DriverPod], fingerprint: str, *, ready: set[str], nodes: tuple[str, ...]
) -> list[Action]:
    """Replace pods of an older template: broken ones at once, working ones one at a time."""
    pods = sorted(pods, key=lambda pod: pod.node)
    outdated = [pod for pod in pods if pod.fingerprint != fingerprint and not pod.deleting]
    unsettled = any(pod.deleting or (pod.fingerprint == fingerprint and pod.node not in ready) for pod in pods)
    # A pod that is gone and not yet made anew is away as well.
    unsettled = unsettled or not {pod.node for pod in pods}.issuperset(nodes)
    chosen = [pod for pod in outdated if pod.node not in ready]
    if not chosen and not unsettled:
        chosen = outdated[:1]
    return [ReplacePod(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=pod.node) for pod in chosen]


def identities(labels: Mapping[str, str]) -> dict[str, str]:
    """Read module identities from an image's labels; empty for a prebuilt image that carries none."""
    try:
        modules = json.loads(labels.get(images.MODULES_LABEL, "[]"))
        return {module["name"]: module["identity"] for module in modules}
    except (ValueError, KeyError, TypeError):
        return {}
