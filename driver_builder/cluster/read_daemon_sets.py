"""What a DaemonSet of ours in the API server says, as a value of the snapshot. Pure."""

from dataclasses import dataclass

from driver_builder.base.boundary import contained
from driver_builder.cluster.read_metadata import (
    Json,
    controller_of,
    driver_of,
    expected_modules,
    needed_modules,
    place,
)
from driver_builder.objects import manifests, plugin, slots, vendor_pod
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.plugin import PluginConfig, PluginSet, StraySet
from driver_builder.objects.slots import Slot
from driver_builder.snapshot.snapshot import DaemonSet
from kube_api import names


@dataclass(frozen=True, slots=True)
class OwnedDaemonSet:
    """A DaemonSet with our label, and the uid of what controls it: a label alone makes none ours."""

    owner: str
    daemon_set: DaemonSet | PluginSet


def read_owned_daemon_set(obj: Json) -> OwnedDaemonSet | None:
    """Read a DaemonSet that somebody controls; one that cannot be read is left out."""
    owner = str(controller_of(obj).get("uid") or "")
    read = read_plugin_set if plugin.STAGE_LABEL in obj["metadata"]["labels"] else read_daemon_set
    found = contained("DaemonSet", place(obj), lambda: read(obj), lambda _error: None) if owner else None
    return None if found is None else OwnedDaemonSet(owner, found)


def read_plugin_set(obj: Json) -> PluginSet:
    """Read the DaemonSet of a device plugin."""
    metadata = obj["metadata"]
    return PluginSet(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        driver=driver_of(metadata),
        spec=obj["spec"],
        resource=(metadata.get("annotations") or {}).get(plugin.RESOURCE_ANNOTATION, ""),
        written=tuple(
            entry for entry in metadata.get("managedFields") or () if "f:spec" in (entry.get("fieldsV1") or {})
        ),
    )


def read_stray_set(obj: Json, owner: str) -> StraySet | None:
    """Read a DaemonSet with the name of a plugin's; None if the driver, whose uid is ``owner``, controls it."""
    metadata, controller = obj["metadata"], controller_of(obj).get("uid")
    if controller == owner:
        return None
    writers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    # Somebody may have taken away who controls it, as anything else.
    is_ours = not controller and manifests.FIELD_MANAGER in writers
    return StraySet(uid=metadata["uid"], is_ours=is_ours)


def read_plugin_config(obj: Json, owner: str) -> PluginConfig:
    """Read the ConfigMap of a device plugin; ``owner`` is the uid of the driver that should control it."""
    return PluginConfig(
        uid=obj["metadata"]["uid"],
        digest=plugin.config_digest(str((obj.get("data") or {}).get(plugin.CONFIG_KEY, ""))),
        is_own=controller_of(obj).get("uid") == owner,
    )


def read_daemon_set(obj: Json) -> DaemonSet:
    """Read a DaemonSet."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    pod_spec = obj["spec"]["template"]["spec"]
    template_annotations = (obj["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    selector = pod_spec.get("nodeSelector") or {}
    basis, kept = manifests.parse_kept(annotations)
    target, slot = slots.parse_name(metadata["labels"].get(manifests.TARGET_LABEL, ""))
    driver = driver_of(metadata)
    label = driver_keys(driver).wave
    return DaemonSet(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        driver=driver,
        target=target,
        image=pod_spec["containers"][0]["image"],
        fingerprint=annotations.get(manifests.FINGERPRINT_ANNOTATION, ""),
        template=annotations.get(manifests.TEMPLATE_ANNOTATION, ""),
        kernel=annotations.get(manifests.KERNEL_ANNOTATION, ""),
        # Before it was recorded, it was a part of the selector.
        os_version=annotations.get(manifests.OS_VERSION_ANNOTATION, selector.get(names.OS_VERSION_LABEL)),
        selects_os_version=names.OS_VERSION_LABEL in selector,
        adopted=annotations.get(manifests.ADOPTED_ANNOTATION, ""),
        folders=manifests.folders_of(pod_spec),
        hooks=tuple(item["name"] for item in pod_spec["containers"] if "lifecycle" in item),
        kept=kept,
        basis=basis,
        version=template_annotations.get(manifests.VERSION_ANNOTATION, ""),
        expected=expected_modules(template_annotations),
        needed=needed_modules(template_annotations),
        slot=Slot(slot, slots.place_of(pod_spec, label)),
        node_selector=dict(selector),
        tolerations=manifests.as_text(pod_spec.get("tolerations") or []),
        first=manifests.firsts_of(pod_spec),
        has_program=manifests.has_program(pod_spec),
        sees_programs=manifests.sees_programs(pod_spec),
        asked=vendor_pod.asked_of(pod_spec),
    )
