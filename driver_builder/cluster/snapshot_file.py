"""A snapshot as a document: what ``driver-builder snapshot`` writes and ``--snapshot`` reads. No I/O.

Its ``items`` are the API server's own objects, as far as a plan is made of them (:mod:`.kept_fields`), and ``errors``
what could not be read of it: ``observe`` reads both as it reads a cluster. Beside them stand what is known from
elsewhere, such as the answers of registries, digests of sources and templates, and the settings of the plan, so that
anybody can make the same plan again. Secrets are named, never included.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_kinds import camel_case
from driver_builder.base.errors import ConfigurationError
from driver_builder.cluster import kept_fields, plain_values
from driver_builder.cluster.observe import Observer
from driver_builder.cluster.recorder import Recorder
from driver_builder.model import images
from driver_builder.model.build import SourceFiles, source_digest
from driver_builder.model.image_state import ImageState, Present
from driver_builder.model.images import ImageRef
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.rollout.draining import PAUSED
from driver_builder.snapshot.snapshot import OwnTemplate, Snapshot, Source, SourceMissing
from kube_api import names
from kube_api.client import Object
from kube_api.errors import KubeApiError, of_status
from kube_api.resources import NODES
from kube_api.stored_objects import StoredObjects
from kube_api.timestamps import timestamp

API_VERSION = f"snapshot.{names.GROUP}/v2"
KIND = "Snapshot"
_EARLIER = f"snapshot.{names.GROUP}/v1"

_KNOWN = (
    "sources", "templates", "certificates", "plugin_configs", "images", "pushed", "images_of", "drained_last",
    "locks_first_seen", "refused_evictions", "running_builds", "queued_builds", "suspended", "failed_builds",
    "discoveries", "running_discoveries",
)  # fmt: skip
"""What a snapshot has from elsewhere than the objects."""
_LABELS = frozenset({names.KERNEL_VERSION_LABEL, names.OS_ID_LABEL, names.OS_VERSION_LABEL, names.ARCHITECTURE_LABEL,
                     names.MIG_STATE_LABEL})  # fmt: skip
_IMAGE_LABELS = frozenset(
    {images.KEY_LABEL, images.FIRMWARE_LABEL, images.USERSPACE_LABEL, images.MODULES_LABEL, images.NEEDED_LABEL,
     *images.TARGET_LABELS}
)  # fmt: skip


def to_document(
    recorded: Recorder, snapshot: Snapshot, settings: PlanSettings, *, namespaces: tuple[str, ...], writer: str
) -> dict[str, Any]:
    """Write what was recorded while a snapshot was taken, what that has besides, and the settings of its plan."""
    labels = _labels(snapshot)
    besides = _reduced(snapshot)
    hints = plain_values.hints(Snapshot)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "writer": writer,
        "time": timestamp(snapshot.now),
        "now": snapshot.now,
        "namespaces": list(namespaces),
        "settings": plain_values.encode(PlanSettings, settings),
        **{camel_case(name): plain_values.encode(hints[name], getattr(besides, name)) for name in _KNOWN},
        "errors": [
            {"path": path, "status": error.status, "message": error.message}
            for path, error in sorted(recorded.errors.items())
        ],
    }
    items = [_item(obj, labels) for _, obj in sorted(recorded.objects.items())]
    return {**kept_fields.without_users(document), "items": items}


def from_document(document: Any) -> tuple[Snapshot, PlanSettings]:
    """Read what :func:`to_document` wrote.

    Raises:
        ConfigurationError: naming the invalid field, its value and what was expected.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ConfigurationError("it is not a snapshot: create one with driver-builder snapshot")
    if document.get("apiVersion") == _EARLIER:
        raise ConfigurationError(
            "driver-builder 0.1 wrote it, whose files this version does not read: create it again, with driver-builder"
            " snapshot of this version, or read it with the version that wrote it"
        )
    if document.get("apiVersion") != API_VERSION:
        raise ConfigurationError(
            f"apiVersion: {document.get('apiVersion')!r} is not supported, only {API_VERSION}: use the "
            "driver-builder that wrote it"
        )
    settings = plain_values.decode(PlanSettings, document.get("settings"), "settings")
    hints = plain_values.hints(Snapshot)
    now = plain_values.decode(float, document.get("now"), "now")
    places = plain_values.decode(tuple[str, ...], document.get("namespaces"), "namespaces")
    known = {name: plain_values.decode(hints[name], document.get(key := camel_case(name)), key)
             for name in _KNOWN}  # fmt: skip
    objects = _objects(document)
    try:
        observer = Observer(
            objects,
            namespaces=places,
            clock=lambda: now,
            refused_evictions=dict(known["refused_evictions"]),
            locks_seen=_locks(objects, known["locks_first_seen"]),
            accounts=settings.plugin_accounts,
            agent_drains=settings.agent_drains,
        )
        return replace(observer.observe(), **known), settings
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, KubeApiError) as error:
        raise ConfigurationError(f"items: they cannot be read: {type(error).__name__}: {error}") from error


def with_hidden_values(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the drivers whose fingerprints cover variables, whose values no file has: their pods look outdated."""
    mappings = ((item.key, item.spec.kernel_mappings) for item in snapshot.drivers if isinstance(item.spec, DriverSpec))
    return tuple(key for key, found in mappings if any(mapping.vendor.container.env for mapping in found))


def _labels(snapshot: Snapshot) -> frozenset[str]:
    """Return the labels of nodes that are read besides our own."""
    specs = [driver.spec for driver in snapshot.drivers if isinstance(driver.spec, DriverSpec)]
    drains = (spec.rollout.drain.pause_labels for spec in specs if spec.rollout.drain is not None)
    selectors = ((*spec.node_selector, *spec.rollout.canary_node_selector) for spec in specs)
    return _LABELS.union(*drains, *selectors)


def _item(obj: Object, labels: frozenset[str]) -> Object:
    if obj["kind"] != NODES.kind:
        return obj
    # A drain whose driver was edited since still knows its labels.
    kept = {
        key: text
        for key, text in (obj["metadata"].get("labels") or {}).items()
        if key in labels or kept_fields.is_ours(key) or text == PAUSED
    }
    return {**obj, "metadata": {**obj["metadata"], "labels": kept}}


def _reduced(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with digests in place of contents, and of images the labels that are read."""
    return replace(
        snapshot,
        sources={key: _source(source) for key, source in snapshot.sources.items()},
        templates={key: _template(template) for key, template in snapshot.templates.items()},
        images=_images(snapshot.images),
        images_of={driver: _images(states) for driver, states in snapshot.images_of.items()},
    )


def _source(source: Source) -> Source:
    return SourceFiles(files={}, known_digest=source_digest(source)) if isinstance(source, SourceFiles) else source


def _template(template: OwnTemplate) -> OwnTemplate:
    return template if isinstance(template, SourceMissing) else replace(template, text="", known_digest=template.digest)


def _images(states: Mapping[ImageRef, ImageState]) -> dict[ImageRef, ImageState]:
    return {image: _image(state) for image, state in states.items()}


def _image(state: ImageState) -> ImageState:
    if not isinstance(state, Present):
        return state
    return replace(state, labels={key: text for key, text in state.labels.items() if key in _IMAGE_LABELS})


def _objects(document: Mapping[str, Any]) -> StoredObjects:
    items = plain_values.decode(tuple[dict[str, Any], ...], document.get("items"), "items")
    errors = plain_values.decode(tuple[dict[str, Any], ...], document.get("errors"), "errors")
    try:
        return StoredObjects(
            {kept_fields.path_of(item): item for item in items},
            {item["path"]: of_status(item["status"], str(item["message"])) for item in errors},
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"items: one of them is no object of the API server: {error!r}") from error


def _locks(objects: StoredObjects, first_seen: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return what ``observe`` remembers of the locks that are renewed in the future."""
    texts = {name: objects.objects.get(NODES.path(name=name), {}).get("metadata") or {} for name in first_seen}
    return {name: ((texts[name].get("annotations") or {}).get(names.LOCK_ANNOTATION, ""), at)
            for name, at in first_seen.items()}  # fmt: skip
