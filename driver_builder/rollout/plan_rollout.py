"""An existing image: roll it out to exactly the nodes of its target, and count where it is proven. Pure.

It says where each node stands; :mod:`driver_builder.rollout` decides over all targets whose pods are replaced.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import VendorSettings
from driver_builder.base.memo import remembers_texts
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model import images
from driver_builder.model.driver_key import driver_key
from driver_builder.model.image_state import Present
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.nodes import held_out
from driver_builder.nodes.changes import Change, PatchNode, apply_daemon_set
from driver_builder.nodes.evidence import NodeEvidence, ValidationState, is_current
from driver_builder.nodes.lanes import lanes, place
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.standing import Lanes, Standing, TargetStanding, Weighing, stand
from driver_builder.objects import manifests, slots, vendor_pod
from driver_builder.objects.fingerprint import fingerprint, is_of_this_form
from driver_builder.objects.load_report import HELD
from driver_builder.objects.slots import Place, Slot
from driver_builder.snapshot.rebuild import is_due, served
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from driver_builder.targets.desired_target import ImageTarget, PrebuiltTarget
from kube_api.timestamps import timestamp

Json = dict[str, Any]

MAX_MODULES = 256
_WORD = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""Names of modules, srcversions and build ids."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def roll_out(view: DriverView, spec: DriverSpec, item: ImageTarget, state: Present, part: TargetPart) -> TargetPart:
    """Roll the image out to exactly the target's nodes and count where it is proven."""
    known = view.daemon_sets.get(item.target.short_hash)
    written, manifest = _wanted(view, spec, item, state, known, slot=known.slot if known is not None else slots.ONLY)
    found = lanes(view, spec, item, known, written)
    if found.front is not known or found.slot != written.slot:
        written, manifest = _wanted(view, spec, item, state, found.front, slot=found.slot, basis=found.spare)
    kept_out = _kept_out(view, item, found, written)
    actions: list[Change] = [*(kept_out or place(view, item.target.id, found, written))]
    is_other = found.front is None or _is_written_otherwise(found.front, written)
    is_early = held_out.waits_unrecorded(view, item.nodes, item.target.short_hash)
    if is_other and not (found.waits or kept_out or is_early):
        actions.append(
            apply_daemon_set(
                namespace=view.driver.namespace,
                name=written.name,
                driver=view.driver.key,
                target=item.target.id,
                manifest=manifest(),
                hooks=found.front.hooks if found.front is not None else (),
            )
        )
    is_undone = written.fingerprint in view.driver.undone
    # Where the driver works from the image of before, one node is like the other.
    waiting = view.waiting.get(item.target, ()) if known is found.front else ()
    # The pod of an ordinary node is the one that the DaemonSet wants, while that is what is wanted.
    is_same = known is not None and known is found.front and _judged_by(known) == _judged_by(written)
    if is_same and not is_undone:
        nodes = view.weighed(item)
    else:
        others = frozenset(waiting)
        nodes = tuple(node for node in item.nodes if node not in others)
    pods = [pod for node in nodes for pod in view.pods_on(node) if pod.target == item.target.short_hash]
    outdated = [
        pod for pod in pods if not pod.deleting and (pod.slot != written.slot.name or _is_outdated(view, pod, written))
    ]
    current = {pod.node for pod in pods if not pod.deleting}.difference(pod.node for pod in outdated)
    weighing = Weighing(
        target=item.target.short_hash,
        driver=view.driver.key,
        fingerprint=written.fingerprint,
        outdated={pod.uid: is_current(pod, written) for pod in outdated},
        asking=frozenset(pod.uid for pod in outdated if is_due(pod, view.rebuilds, written.image)),
        lanes=found,
        evidence=part.evidence if view.validation.is_set else {},
        kept_out=held_out.waiting(view, nodes, item.target.short_hash),
    )
    standing = TargetStanding(
        target=item.target.short_hash,
        fingerprint=written.fingerprint,
        is_written=found.front is not None
        and (found.front.fingerprint, found.front.image, found.front.asked)
        == (written.fingerprint, written.image, written.asked)
        and found.is_placed,
        lanes=found if found.spare is not None else None,
        is_undone=is_undone,
        settled=len(item.nodes) - len(nodes) - len(waiting),
        waiting=waiting,
        nodes=stand((view.nodes[node] for node in nodes if node in view.nodes), pods, weighing),
    )
    done = not waiting and all(part.of_node(node).version is not None and node in current for node in nodes)
    # In a wave the label of before is no proof of what a node has got.
    done = done and (found.spare is None or all(node.standing is not Standing.UNPROVEN for node in standing.nodes))
    status = replace(
        part.status,
        digest=state.digest,
        key=item.key,
        state=TargetState.READY if done else TargetState.ROLLING_OUT,
        reason=Reason.ALL_NODES_READY if done else Reason.WAITING_FOR_NODES,
        message=_progress_words(view, item, part, sorted((*nodes, *waiting[:1])), current),
    )
    done_by = served(pods, view.rebuilds, written.image)
    made = replace(part, status=status, actions=tuple(actions), served=done_by, standing=standing)
    if done and found.front is not None:
        made = replace(made, spent=found.spare)
    held = min((pod for pod in pods if _is_held(view, pod)), key=lambda pod: (pod.node, pod.name), default=None)
    if held is not None and held.proof is not None:
        words = f"{held.node}: {held.proof.message}"
        if held.proof.result == Reason.WAITING_FOR_DEPENDENCY:
            # No trouble of this driver: the pod loads by itself once the other one has.
            return made.with_status(reason=Reason.WAITING_FOR_DEPENDENCY, message=words)
        return made.blocked(Reason.MODULE_CONFLICT, words)
    of_current = (node for node in nodes if node in current)
    failed = next((node for node in of_current if part.of_node(node).validation is ValidationState.FAILED), None)
    if failed is not None:
        words = f"{failed}: {part.of_node(failed).why.removeprefix(f'{Reason.VALIDATION_FAILED}: ')}"
        return made.blocked(Reason.VALIDATION_FAILED, words)
    return made


def _kept_out(view: DriverView, item: ImageTarget, found: Lanes, written: DaemonSet) -> tuple[PatchNode, ...]:
    """Keep pods from nodes whose DaemonSet is missing, before another one comes to them."""
    known = view.daemon_sets.get(item.target.short_hash)
    if known is None:
        return held_out.keep_out_exposed(view, item.nodes, written, None)
    if known.slot.place is Place.ALL or item.target.short_hash in view.pairs:
        return ()
    coming = found.spare if found.spare is not None and known.slot.place is Place.MOVED else written
    return held_out.keep_out_exposed(view, item.nodes, coming, known)


def _is_written_otherwise(front: DaemonSet, written: DaemonSet) -> bool:
    # Annotations and image can differ: somebody may have set another image by hand.
    is_placed = (front.slot.place is Place.MOVED) is (written.slot.place is Place.MOVED)
    return front.template != written.template or front.image != written.image or not is_placed


def _wanted(
    view: DriverView,
    spec: DriverSpec,
    item: ImageTarget,
    state: Present,
    existing: DaemonSet | None,
    *,
    slot: Slot,
    basis: DaemonSet | None = None,
) -> tuple[DaemonSet, Callable[[], Json]]:
    """Return the DaemonSet that is wanted, and a function that makes its manifest; a new one is based on ``basis``."""
    node_rebuilds = view.rebuilds.of_nodes(item.nodes)
    pair = view.pairs.get(item.target.short_hash)
    beside = pair.beside(slot) if pair is not None else basis
    follows_program = beside is not None and beside.has_program
    manifest = partial(
        manifest_of,
        view.driver,
        spec,
        item,
        state,
        existing=existing or basis,
        slot=slot,
        loader_image=view.settings.loader_image,
        privileges=view.settings.loader_privileges,
        node_rebuilds=node_rebuilds,
        first=view.dependencies.first,
        follows_program=follows_program,
    )
    inputs = (view.driver.key, view.driver.uid, spec, view.settings, item.target, item.image, item.rebuild, item.basis,
              item.selects_os_version, _vendor(item), state, existing, basis, slot, node_rebuilds,
              view.dependencies.first, follows_program)  # fmt: skip
    # In a wave two are made: how the one that nodes move to would be, and how the wanted one is.
    place = slots.name_in(item.target.short_hash, slot.name)
    known = view.written.get(place)
    if known is None or known[0] != inputs:
        known = view.written[place] = (inputs, as_written(manifest(), existing, slot))
    return known[1], manifest


def _judged_by(item: DaemonSet) -> tuple[object, ...]:
    """Return what makes pods of a DaemonSet current: where that is written the same, they stay so."""
    return (item.fingerprint, item.kept, item.adopted, item.builds, item.image, item.asked)


def _is_held(view: DriverView, pod: DriverPod) -> bool:
    """Return whether another driver prevents a pod from loading, on this boot of its node."""
    found = pod.proof if not pod.deleting else None
    return found is not None and found.result in HELD and view.nodes[pod.node].is_on_boot(found.boot_id)


def _is_outdated(view: DriverView, pod: DriverPod, written: DaemonSet) -> bool:
    return not is_current(pod, written) or is_due(pod, view.rebuilds, written.image)


def manifest_of(
    driver: DriverContainer,
    spec: DriverSpec,
    item: ImageTarget,
    state: Present,
    *,
    existing: DaemonSet | None,
    loader_image: str,
    node_rebuilds: Mapping[str, str],
    privileges: LoaderPrivileges = LoaderPrivileges.PRIVILEGED,
    slot: Slot = slots.ONLY,
    first: tuple[tuple[str, tuple[str, ...]], ...] = (),
    follows_program: bool = False,
) -> Json:
    """Make the DaemonSet that rolls an image out to a target's nodes, with what is kept of the existing one."""
    known, firmware = identities(state.labels), state.labels.get(images.FIRMWARE_LABEL, "")
    needed = _modules_in(state.labels, images.NEEDED_LABEL)
    vendor = _vendor(item)
    userspace = _digest(state.labels.get(images.USERSPACE_LABEL, ""))
    on_node = fingerprint(
        spec,
        identities=known,
        needed=needed,
        image_digest=state.digest,
        firmware=firmware,
        userspace=userspace,
        rebuild=item.rebuild,
        vendor=vendor,
    )
    # The fingerprint without the rebuilds that single nodes request.
    basis = fingerprint(spec, identities={}, image_digest=item.basis, rebuild=item.rebuild) if item.basis else ""
    return manifests.daemon_set(
        driver,
        spec,
        target=item.target,
        image=item.image.at(state.digest),
        identities=known,
        needed=needed,
        firmware=firmware,
        userspace=userspace,
        rebuild=item.rebuild,
        loader_image=loader_image,
        privileges=privileges,
        node_rebuilds=node_rebuilds,
        folders=existing.folders if existing is not None else (),
        selects_os_version=item.selects_os_version,
        adopted=_adopted(existing, on_node),
        basis=basis,
        kept=_kept(existing, on_node, basis),
        slot=slot,
        first=first,
        vendor=vendor,
        follows_program=follows_program,
    )


def _digest(label: str) -> str:
    """Read a digest, which names a folder on nodes; any other text of a prebuilt image is none."""
    return label if _DIGEST.fullmatch(label) else ""


def _vendor(item: ImageTarget) -> VendorSettings | None:
    return item.vendor if isinstance(item, PrebuiltTarget) else None


def as_written(manifest: Json, existing: DaemonSet | None, slot: Slot = slots.ONLY) -> DaemonSet:
    """Return the DaemonSet as it is after the manifest is applied."""
    metadata, template = manifest["metadata"], manifest["spec"]["template"]
    basis, kept = manifests.parse_kept(metadata["annotations"])
    return DaemonSet(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=existing.uid if existing is not None else "",
        driver=driver_key(metadata["namespace"], metadata["labels"][manifests.DRIVER_LABEL]),
        target=slots.parse_name(metadata["labels"][manifests.TARGET_LABEL])[0],
        slot=slot,
        image=template["spec"]["containers"][0]["image"],
        fingerprint=metadata["annotations"][manifests.FINGERPRINT_ANNOTATION],
        template=metadata["annotations"][manifests.TEMPLATE_ANNOTATION],
        kernel=metadata["annotations"][manifests.KERNEL_ANNOTATION],
        os_version=metadata["annotations"][manifests.OS_VERSION_ANNOTATION],
        adopted=metadata["annotations"].get(manifests.ADOPTED_ANNOTATION, ""),
        basis=basis,
        kept=kept,
        folders=manifests.folders_of(template["spec"]),
        version=template["metadata"]["annotations"][manifests.VERSION_ANNOTATION],
        expected=json.loads(template["metadata"]["annotations"][manifests.MODULES_ANNOTATION]),
        needed=json.loads(template["metadata"]["annotations"].get(manifests.NEEDED_ANNOTATION, "{}")),
        node_selector=template["spec"]["nodeSelector"],
        tolerations=manifests.as_text(template["spec"]["tolerations"]),
        first=manifests.firsts_of(template["spec"]),
        has_program=manifests.has_program(template["spec"]),
        sees_programs=manifests.sees_programs(template["spec"]),
        asked=vendor_pod.asked_of(template["spec"]),
    )


def _kept(existing: DaemonSet | None, on_node: str, basis: str) -> tuple[str, ...]:
    """Return the fingerprints that stay: if only some nodes request a rebuild, the others keep what they have."""
    if existing is None or not basis or existing.basis != basis:
        return ()
    return tuple(sorted((existing.kept | {existing.fingerprint}) - {on_node, ""}))[-manifests.MAX_KEPT :]


def _adopted(existing: DaemonSet | None, on_node: str) -> str:
    """Return the fingerprint that replaces all of an older form: the wanted one when they are first seen."""
    if existing is None:
        return ""
    is_older = bool(existing.fingerprint) and not is_of_this_form(existing.fingerprint)
    return existing.adopted or (on_node if is_older else "")


def _progress_words(
    view: DriverView, item: ImageTarget, part: TargetPart, nodes: Iterable[str], current: set[str]
) -> str:
    """Return how many nodes are ready, and why the first of ``nodes`` is not, or does not have what is wanted."""
    words = f"{part.status.ready_nodes} of {len(item.nodes)} nodes ready"
    for node in nodes:
        found = part.of_node(node)
        if found.version is None:
            return f"{words}; {node}: {found.why}"
        if not found.works:
            return f"{words}; {node}: {_silent_words(view, node, found)}"
        if node not in current:
            return f"{words}; {node}: runs the previous image"
    return words


def _silent_words(view: DriverView, node: str, found: NodeEvidence) -> str:
    note = view.notes.get(node)
    since = found.silent_since or (note.silent_since if note is not None else None) or view.snapshot.now
    return f"no report since {timestamp(min(since, view.snapshot.now))}: {found.why}"


def identities(labels: Mapping[str, str]) -> dict[str, str]:
    """Read module identities from an image's labels; empty for a prebuilt image without them."""
    return _modules_in(labels, images.MODULES_LABEL)


def _modules_in(labels: Mapping[str, str], label: str) -> dict[str, str]:
    return dict(_identities(labels.get(label, "[]")))


@remembers_texts
def _identities(text: str) -> Mapping[str, str]:
    try:
        found = {module["name"]: module["identity"] for module in json.loads(text)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if len(found) <= MAX_MODULES and all(map(_is_word, found.keys() | found.values())) else {}


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None
