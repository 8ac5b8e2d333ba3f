"""The snapshot that ``build`` resolves drivers in: of files alone, or of a cluster with the drivers in the files. Pure.

The build key of a target is the one that a controller computes for the same DriverContainer. What a controller knows
besides is in its cluster: rebuilds that were requested, the recorded version of a kernel's operating system, drivers
that others depend on. With a snapshot all of that is as in the cluster; without one it is as in a new cluster.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from driver_builder.api import rebuild_status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.model.build import BuildRequest
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot.snapshot import CertificateMissing, Snapshot
from driver_builder.targets.desired_target import DesiredTarget, TargetToBuild, TemplateVersions
from driver_builder.targets.resolve_node import resolve_for
from kube_api import names

_WORDS = {
    "args": "other build arguments",
    "baseImage": "another base image",
    "certificate": "another signing certificate",
    "dependsOn": "other drivers that it depends on",
    "firmware": "another firmwarePath",
    "modules": "other modules or parameters",
    "rebuild": "another rebuild token",
    "recipe": "another version of the template",
    "source": "another source",
    "userspace": "another user space",
    "version": "another spec.version",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineCluster:
    """``snapshot`` has the drivers to build, ``known`` is that of a cluster as it was, with the versions there."""

    snapshot: Snapshot
    versions: TemplateVersions
    known: Snapshot | None = None
    known_versions: TemplateVersions = field(default_factory=lambda: TemplateVersions(versions={}))

    def drivers(self, wanted: Iterable[DriverContainer]) -> tuple[DriverContainer, ...]:
        """Return the drivers of files as they are in this cluster."""
        keys = [driver.key for driver in wanted]
        return tuple(sorted((d for d in self.snapshot.drivers if d.key in keys), key=lambda d: keys.index(d.key)))

    def item(self, driver: DriverContainer, spec: DriverSpec, target: KernelTarget) -> DesiredTarget | None:
        """Return what a node on the target would run."""
        return resolve_for(self.snapshot, driver, spec, target, self.versions)

    def notes(self, driver: DriverContainer, target: KernelTarget, item: DesiredTarget | None) -> tuple[str, ...]:
        """Say where a cluster would, or may, compute another build key."""
        if not isinstance(item, TargetToBuild):
            return ()
        said = self._beside_files(driver) if self.known is None else self._beside_cluster(driver, target, item.request)
        return (*said, *_other_version(item.target, target))

    def _beside_files(self, driver: DriverContainer) -> Iterator[str]:
        if rebuild_status.from_status(driver.status.get("rebuild")).tokens:
            yield (
                "the rebuild tokens in the status of the file are in the build key: a cluster without them computes"
                " another key"
            )
        elif driver.rebuild:
            yield (
                f"annotation {names.REBUILD_ANNOTATION} is in the build key as if it were the first: a cluster that saw"
                " another value before computes another key (--snapshot takes it from there)"
            )

    def _beside_cluster(self, driver: DriverContainer, target: KernelTarget, request: BuildRequest) -> Iterator[str]:
        known = next((other for other in self.known.drivers if other.key == driver.key), None) if self.known else None
        if self.known is None or known is None:
            yield f"the snapshot has no DriverContainer {driver.key}: check --namespace"
            return
        if not isinstance(known.spec, DriverSpec):
            yield "the DriverContainer of the snapshot has an invalid spec: that cluster builds nothing"
            return
        there = resolve_for(self.known, known, known.spec, target, self.known_versions)
        if not isinstance(there, TargetToBuild):
            yield f"the cluster of the snapshot builds nothing for this kernel{_why(there)}"
        elif there.request.key != request.key:
            why = _differences(there, request)
            yield f"the cluster of the snapshot computes the build key {there.request.key}: {why}"


def of_files(drivers: tuple[DriverContainer, ...], inputs: DriverInputs, versions: TemplateVersions) -> OfflineCluster:
    """Make the cluster of files: new, and without nodes."""
    snapshot = Snapshot(
        now=0.0,
        drivers=drivers,
        sources=dict(inputs.sources(drivers)),
        templates=dict(inputs.templates(drivers)),
        certificates=dict(inputs.certificates(drivers)),
    )
    return OfflineCluster(snapshot=snapshot, versions=versions)


def of_snapshot(
    given: OfflineCluster, known: Snapshot, known_versions: TemplateVersions, applied: TemplateVersions
) -> OfflineCluster:
    """Make the cluster that a known one is once the given drivers are applied to it.

    ``applied`` are the settings of the known one as far as they hold here. It has our templates: they build.
    """
    there = {driver.key: driver for driver in known.drivers}
    drivers = {**there, **{new.key: _applied(new, there.get(new.key)) for new in given.snapshot.drivers}}
    certificates = {
        name: certificate
        for name, certificate in given.snapshot.certificates.items()
        if not isinstance(certificate, CertificateMissing) or name not in known.certificates
    }
    snapshot = replace(
        known,
        drivers=tuple(drivers[key] for key in sorted(drivers)),
        sources={**known.sources, **given.snapshot.sources},
        templates={**known.templates, **given.snapshot.templates},
        certificates={**known.certificates, **certificates},
    )
    versions = replace(applied, versions=given.versions.versions)
    return OfflineCluster(snapshot=snapshot, versions=versions, known=known, known_versions=known_versions)


def _applied(new: DriverContainer, there: DriverContainer | None) -> DriverContainer:
    """Return a driver as it is after ``kubectl apply``, which leaves status and other annotations."""
    if there is None:
        return new
    return replace(new, uid=there.uid, status=there.status, rebuild=new.rebuild or there.rebuild)


def _differences(there: TargetToBuild, request: BuildRequest) -> str:
    theirs, ours = there.request.key_parts, request.key_parts
    found = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
    return f"it has {', '.join(_WORDS.get(name, f'another {name}') for name in found)}"


def _why(item: DesiredTarget | None) -> str:
    message = getattr(item, "message", "")
    return f": {message}" if message else ""


def _other_version(used: KernelTarget, asked: KernelTarget) -> Iterator[str]:
    if used.os_version != asked.os_version:
        yield f"built for {used.os}, which the cluster has recorded for this kernel, not for {asked.os}"
