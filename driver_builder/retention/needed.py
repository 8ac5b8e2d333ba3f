"""Which images does the cluster need now? Pure.

Place in the flow: the controller records it, and ``driver-builder gc`` asks again before it removes
anything. In doubt an image is needed: every digest that a DriverContainer, a DaemonSet or a driver pod of ours names
is, whatever for.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.images import ImageRef, parse_reference
from driver_builder.model.toolchain import is_toolchain, toolchain_image
from driver_builder.prebuild.prebuild import images_ahead
from driver_builder.prebuild.upgrade_labels import images_of_moves
from driver_builder.retention.record import PushedImage
from driver_builder.snapshot.snapshot import CertificateMissing, Snapshot, SourceMissing
from driver_builder.targets.desired_target import ImageTarget, TargetToBuild, TemplateVersions
from driver_builder.targets.resolve import Resolved

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Images by their tags, and digests. ``unreadable`` are drivers of which it is not known what they want."""

    tags: frozenset[ImageRef]
    digests: frozenset[str]
    unreadable: frozenset[str]

    @property
    def toolchains(self) -> frozenset[ImageRef]:
        """The tags that are toolchains'."""
        return frozenset(filter(is_toolchain, self.tags))

    def why(self, image: PushedImage) -> str:
        """Return what an image is needed for; empty if it is not."""
        if image.image in self.tags:
            return "a driver wants it"
        if image.digest in self.digests:
            return "a DriverContainer, a DaemonSet or a pod names it"
        if image.driver in self.unreadable:
            return f"what {image.driver} wants cannot be read"
        return ""


def needed(snapshot: Snapshot, resolved: Mapping[str, Resolved], versions: TemplateVersions) -> Needed:
    """Find what the drivers of a snapshot need: on their nodes, for the next kernels, and rolled out before."""
    return Needed(
        tags=frozenset(_tags(snapshot, resolved, versions)),
        digests=frozenset(_digests(snapshot)),
        unreadable=frozenset(driver.key for driver in snapshot.drivers if _is_unreadable(snapshot, driver, resolved)),
    )


def _is_unreadable(snapshot: Snapshot, driver: DriverContainer, resolved: Mapping[str, Resolved]) -> bool:
    if driver.deleting:
        return False
    if driver.key not in resolved or not isinstance(driver.spec, DriverSpec):
        return True
    inputs = (snapshot.sources.get(driver.key), snapshot.templates.get(driver.key))
    certificates = (snapshot.certificates.get(f"{driver.namespace}/{name}") for name in driver.spec.certificate_secrets)
    return any(isinstance(found, SourceMissing | CertificateMissing) for found in (*inputs, *certificates))


def _tags(snapshot: Snapshot, resolved: Mapping[str, Resolved], versions: TemplateVersions) -> Iterator[ImageRef]:
    for item in resolved.values():
        yield from (tag for target in item.images for tag in _tags_of(target))
    for _, target in (*images_ahead(snapshot, versions), *images_of_moves(snapshot, versions)):
        yield from _tags_of(target)
    for driver in snapshot.drivers:
        for mapping in driver.spec.kernel_mappings if isinstance(driver.spec, DriverSpec) else ():
            if mapping.image is not None:
                yield parse_reference(mapping.image)


def _tags_of(target: ImageTarget) -> Iterator[ImageRef]:
    """A target's image, and the toolchain that its next build begins with."""
    yield target.image
    if isinstance(target, TargetToBuild) and (toolchain := toolchain_image(target.request, target.image)) is not None:
        yield toolchain


def _digests(snapshot: Snapshot) -> Iterator[str]:
    for driver in snapshot.drivers:
        yield from driver.accepted_digests
        yield from _DIGEST.findall(json.dumps(driver.status))
        for mapping in driver.spec.kernel_mappings if isinstance(driver.spec, DriverSpec) else ():
            yield from _DIGEST.findall(mapping.image or "")
    rolled_out = {item.image for item in snapshot.daemon_sets} | {pod.image for pod in snapshot.pods}
    for image in rolled_out:
        yield from _DIGEST.findall(image)
