"""A snapshot as a document: what ``driver-builder snapshot`` writes and ``--snapshot`` reads. Pure.

The document has exactly what a plan is made of: of nodes the labels and annotations that are read, of
sources and custom templates their digests, of images the identities of their modules. Secrets are named, never
included. The settings of the plan are part of it, so that anybody can make the same plan again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import ConfigurationError
from driver_builder.cluster import plain_data
from driver_builder.model import images
from driver_builder.model.build import SourceFiles, source_digest
from driver_builder.model.image_state import ImageState, Present
from driver_builder.model.images import ImageRef
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import loaded, validated
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.prebuild import upgrade_labels
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import OwnTemplate, Snapshot, Source, SourceMissing
from kube_api import names

API_VERSION = f"snapshot.{names.GROUP}/v1"
KIND = "Snapshot"

_LABELS = frozenset({names.KERNEL_VERSION_LABEL, names.OS_ID_LABEL, names.OS_VERSION_LABEL, names.ARCHITECTURE_LABEL,
                     names.MIG_STATE_LABEL})  # fmt: skip
_ANNOTATIONS = frozenset(
    {names.BOOT_ID_ANNOTATION, names.KERNEL_VERSION_ANNOTATION, names.REBUILD_ANNOTATION, names.LOCK_ANNOTATION,
     names.DRAINING_ANNOTATION, names.DRAIN_REQUEST_ANNOTATION, names.DRAIN_STATE_ANNOTATION,
     names.SKIP_ROLLOUT_ANNOTATION}
)  # fmt: skip
_IMAGE_LABELS = frozenset(
    {images.KEY_LABEL, images.FIRMWARE_LABEL, images.USERSPACE_LABEL, images.MODULES_LABEL, images.NEEDED_LABEL,
     *images.TARGET_LABELS}
)  # fmt: skip
_STATUS = frozenset({"conditions", "targets", "ahead", "nodes", "rebuild", "rollout", "stages"})


def to_document(snapshot: Snapshot, settings: PlanSettings) -> dict[str, Any]:
    """Write a snapshot and the settings of its plan as plain data."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "settings": plain_data.encode(PlanSettings, settings),
        "snapshot": plain_data.encode(Snapshot, reduced(snapshot)),
    }


def from_document(document: Any) -> tuple[Snapshot, PlanSettings]:
    """Read what :func:`to_document` wrote.

    Raises:
        ConfigurationError: naming the invalid field, its value and what was expected.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ConfigurationError("it is not a snapshot: create one with driver-builder snapshot")
    if document.get("apiVersion") != API_VERSION:
        raise ConfigurationError(
            f"apiVersion: {document.get('apiVersion')!r} is not supported, only {API_VERSION}: use the "
            "driver-builder that wrote it"
        )
    return (
        plain_data.decode(Snapshot, document.get("snapshot"), "snapshot"),
        plain_data.decode(PlanSettings, document.get("settings"), "settings"),
    )


def reduced(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without what plans do not need."""
    keys, annotations = {*_LABELS, names.SECURE_BOOT_LABEL}, set(_ANNOTATIONS)
    for driver in snapshot.drivers:
        own = (driver.namespace, driver.name)
        keys.update((driver.ready_label, names.wave_label(*own), names.wanted_version_label(*own)))
        annotations.add(driver.ready_label)
        stages = [stage_label(driver.key, stage) for stage in Stage]
        keys.update(stages)
        annotations.update(stages)
        if isinstance(driver.spec, DriverSpec):
            keys.update(driver.spec.node_selector, driver.spec.rollout.canary_node_selector)
    return replace(
        snapshot,
        nodes=tuple(_node(node, keys, annotations) for node in snapshot.nodes),
        drivers=tuple(_driver(driver) for driver in snapshot.drivers),
        sources={key: _source(source) for key, source in snapshot.sources.items()},
        templates={key: _template(template) for key, template in snapshot.templates.items()},
        images=_images(snapshot.images),
        images_of={driver: _images(states) for driver, states in snapshot.images_of.items()},
    )


def _node(node: Node, labels: set[str], annotations: set[str]) -> Node:
    labels = labels.union(key for key in node.labels if key.startswith(upgrade_labels.PREFIX))
    annotations = annotations.union(
        key for key in node.annotations if key.startswith((loaded.PREFIX, validated.PREFIX))
    )
    # Who owns a label is of no plan.
    return replace(
        node, labels=_only(node.labels, labels), annotations=_only(node.annotations, annotations), label_owners=()
    )


def _driver(driver: DriverContainer) -> DriverContainer:
    return replace(driver, status=_only(driver.status, _STATUS))


def _source(source: Source) -> Source:
    if not isinstance(source, SourceFiles):
        return source
    return SourceFiles(files={}, known_digest=source_digest(source))


def _template(template: OwnTemplate) -> OwnTemplate:
    return template if isinstance(template, SourceMissing) else replace(template, text="", known_digest=template.digest)


def _images(states: Mapping[ImageRef, ImageState]) -> dict[ImageRef, ImageState]:
    return {image: _image(state) for image, state in states.items()}


def _image(state: ImageState) -> ImageState:
    return replace(state, labels=_only(state.labels, _IMAGE_LABELS)) if isinstance(state, Present) else state


def _only(values: Mapping[str, Any], keys: frozenset[str] | set[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in keys}
