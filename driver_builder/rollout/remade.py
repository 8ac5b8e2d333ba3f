"""The DaemonSet with the image of before is made anew where it is missing: nodes keep what they have, or return. Pure.

Place in the flow: ``plan_target`` asks it before another image comes to such nodes. The status has the image and the
fingerprint of that DaemonSet, Nodes record which modules its pods have loaded. It is made of both and of the spec, and
only if the fingerprint comes out the same: its pods load nothing anew. Where it does not, pods are kept away
(:mod:`driver_builder.nodes.held_out`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_settings import Strategy
from driver_builder.api.rollout_status import previous_wave
from driver_builder.api.status import RolledOut
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef, parse_reference
from driver_builder.nodes.changes import ApplyObject, apply_daemon_set
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import manifests, slots
from driver_builder.objects.fingerprint import fingerprint
from driver_builder.objects.slots import Place, Slot
from driver_builder.targets.desired_target import DesiredTarget, TargetToBuild


def rolled_out_to(view: DriverView, item: DesiredTarget) -> RolledOut | None:
    """Return what the nodes of a target have that no wave has reached: also once its DaemonSet is missing."""
    before, target = view.before.get(item.target.id), item.target.short_hash
    pair, known = view.pairs.get(target), view.daemon_sets.get(target)
    found = pair.others if pair is not None else known
    if found is None or found.slot.place is Place.MOVED:
        return before.rolled_out if before is not None else None
    return RolledOut(image=found.image, fingerprint=found.fingerprint)


def remade(view: DriverView, spec: DriverSpec, item: TargetToBuild, rolled_out: RolledOut | None) -> ApplyObject | None:
    """Make the DaemonSet anew that the nodes of a target had before; None if it is there, or not known well enough."""
    slot = _missing(view, item)
    if slot is None or rolled_out is None or not _may_be_remade(view, spec, item, rolled_out):
        return None
    image, found = _image_of(item, rolled_out), next(_proven(view, item, rolled_out.fingerprint), None)
    if image is None or found is None:
        return None
    identities, version = found
    made = {
        fingerprint(spec, identities=identities, image_digest=image.reference, rebuild=token): token
        for token in ("", item.rebuild)
    }
    rebuild = made.get(rolled_out.fingerprint)
    if rebuild is None:
        return None
    known = view.daemon_sets.get(item.target.short_hash)
    manifest = manifests.daemon_set(
        view.driver,
        replace(spec, version=version),
        target=item.target,
        image=image,
        identities=identities,
        loader_image=view.settings.loader_image,
        privileges=view.settings.loader_privileges,
        rebuild=rebuild,
        selects_os_version=item.selects_os_version,
        folders=known.folders if known is not None else (),
        slot=slot,
    )
    return apply_daemon_set(
        namespace=view.driver.namespace,
        name=manifests.daemon_set_name(view.driver, item.target, slot.name),
        driver=view.driver.key,
        target=item.target.id,
        manifest=manifest,
    )


def _may_be_remade(view: DriverView, spec: DriverSpec, item: TargetToBuild, rolled_out: RolledOut) -> bool:
    """Return whether its pods may come: not over other symbols, and not where all nodes get what is wanted at once."""
    if view.dependencies.first or view.rebuilds.of_nodes(item.nodes):
        return False
    state = view.snapshot.image(view.driver.key, item.image)
    if not isinstance(state, Present):
        return True
    wave = previous_wave(view.driver.status)
    is_refused = wave is not None and item.target.short_hash in wave.refused
    is_wanted = rolled_out.image == str(item.image.at(state.digest))
    return not is_wanted and (spec.rollout.strategy is not Strategy.IMMEDIATE or is_refused)


def _missing(view: DriverView, item: TargetToBuild) -> Slot | None:
    """Return where the DaemonSet was that is missing, None if none is."""
    target = item.target.short_hash
    known = view.daemon_sets.get(target)
    if known is not None:
        is_alone = known.slot.place is Place.MOVED and target not in view.pairs
        return Slot(slots.other(known.slot.name), Place.OTHERS) if is_alone else None
    labels = (view.on(view.nodes[name]).wave or "" for name in item.nodes if name in view.nodes)
    moved = next((slot for found, slot in map(slots.parse_name, labels) if found == target), None)
    return slots.ONLY if moved is None else Slot(slots.other(moved), Place.OTHERS)


def _proven(view: DriverView, item: TargetToBuild, value: str) -> Iterator[tuple[Mapping[str, str], str]]:
    """Give the modules of a fingerprint and the version of its driver, by the nodes where they are loaded and ready."""
    for node in (view.nodes[name] for name in item.nodes if name in view.nodes):
        found, version = view.on(node), view.on(node).ready
        for load in found.loads if version is not None else ():
            if (load.target, load.fingerprint) == (item.target.short_hash, value) and load.is_live(node.boot_id):
                yield dict(load.modules), version or ""


def _image_of(item: TargetToBuild, rolled_out: RolledOut) -> ImageRef | None:
    """Return the image, if it is in the repository of the one that is wanted: a status may name any."""
    try:
        image = parse_reference(rolled_out.image)
    except ValueError:
        return None
    is_same = (image.host, image.repository) == (item.image.host, item.image.repository)
    return image if is_same and image.reference.startswith("sha256:") else None
