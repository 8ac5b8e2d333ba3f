"""What ``build`` says of build keys that a cluster would compute: the same, or another one and why."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api import driver_container
from driver_builder.api.driver_container import DriverContainer
from driver_builder.cli.offline.offline_cluster import OfflineCluster, of_files, of_snapshot
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.cluster.snapshot_file import from_document
from driver_builder.model.build import SourceFiles, source_digest
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.registry.given_objects import GivenObjects
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TargetToBuild, TemplateVersions
from driver_builder.targets.resolve import resolve
from tests.support.driver_builder.factories import (
    KERNEL,
    NAMESPACE,
    SOURCE,
    driver_object,
    node,
    snapshot,
    spec_of,
    target,
)
from tests.support.driver_builder.snapshot_files import file_of, node_object

VERSIONS = TemplateVersions(versions={"debian": "recipe-1"})
REBUILT = {"requests": {}, "tokens": {"*": "token"}}


def given(source: SourceFiles = SOURCE, **changes: Any) -> OfflineCluster:
    """Read a driver and its source from files."""
    data = {path: content.decode() for path, content in source.files.items()}
    config_map = {"kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": "edu-source"}, "data": data}
    driver = driver_container.parse(driver_object(**changes))
    return of_files((driver,), DriverInputs(GivenObjects([config_map])), VERSIONS)


def a_cluster(versions: TemplateVersions = VERSIONS, source: SourceFiles = SOURCE, **changes: Any) -> OfflineCluster:
    """Apply the files' driver to a cluster, as a snapshot file has it: sources by their digests only."""
    driver, settings = driver_object(**changes), PlanSettings(template_versions=versions)
    sources = {f"{NAMESPACE}/edu": source}
    known, settings = from_document(file_of(node_object(), driver, settings=settings, sources=sources))
    return of_snapshot(given(), known, settings.template_versions, settings.template_versions)


def resolved(cluster: OfflineCluster) -> tuple[TargetToBuild, tuple[str, ...]]:
    """Return what is built, and what is said."""
    (driver,) = cluster.snapshot.drivers
    item = cluster.item(driver, spec_of(driver), target())
    assert isinstance(item, TargetToBuild)
    return item, cluster.notes(driver, target(), item)


def key_of_controller(known: Snapshot, driver: DriverContainer, versions: TemplateVersions = VERSIONS) -> str:
    """Return the key that a controller of that cluster computes for its node."""
    (item,) = resolve(known, driver, spec_of(driver), versions).targets
    assert isinstance(item, TargetToBuild)
    return item.request.key


def test_a_new_cluster_computes_the_same_key() -> None:
    """Nothing is to be said."""
    item, notes = resolved(given())
    seen = snapshot(node())
    assert item.request.key == key_of_controller(seen, seen.drivers[0])
    assert notes == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"annotations": {"driverwright.io/rebuild": "1"}}, "as if it were the first", id="an annotation"),
        pytest.param({"status": {"rebuild": REBUILT}}, "rebuild tokens in the status of the file", id="a status"),
    ],
)
def test_a_rebuild_in_the_files_is_said(changes: dict[str, Any], words: str) -> None:
    """Its token is in the key, and another cluster may have another one."""
    item, (note,) = resolved(given(**changes))
    assert words in note
    assert item.request.rebuild


def test_a_rebuild_of_the_cluster_is_taken_from_its_snapshot() -> None:
    """The key is that of the cluster, which nothing in the files says."""
    cluster = a_cluster(status={"rebuild": REBUILT})
    item, notes = resolved(cluster)
    assert cluster.known is not None
    assert item.request.key == key_of_controller(cluster.known, cluster.known.drivers[0])
    assert item.request.key != resolved(given())[0].request.key
    assert notes == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"source": SourceFiles(files={"edudrv.c": b"other"})}, "it has another source", id="source"),
        pytest.param({"versions": TemplateVersions(versions={"debian": "recipe-9"})}, "another version of the template",
                     id="template"),
        pytest.param({"spec_changes": {"build": {"args": {"A": "1"}}, "version": "2"}},
                     "it has other build arguments, another spec.version", id="spec"),
        pytest.param({"spec_changes": {"kernelMappings": [{"regexp": ".*", "skip": True}]}},
                     "builds nothing for this kernel: skipped by mapping", id="skipped"),
        pytest.param({"spec_changes": {"image": "?"}}, "has an invalid spec", id="invalid"),
    ],
)  # fmt: skip
def test_another_key_of_the_cluster_is_said_with_the_reason(options: dict[str, Any], words: str) -> None:
    """Which parts of the key differ, by their names in the spec."""
    _, (note,) = resolved(a_cluster(**options))
    assert words in note


def test_a_driver_that_the_snapshot_does_not_have_is_said() -> None:
    """A namespace may be wrong."""
    files = given()
    cluster = of_snapshot(files, snapshot(drivers=()), VERSIONS, VERSIONS)
    _, (note,) = resolved(cluster)
    assert f"no DriverContainer {NAMESPACE}/edu" in note


def test_the_recorded_version_of_the_operating_system_is_built_for() -> None:
    """A node of the cluster was updated under its kernel: the image is for the version of before."""
    files = given(spec_changes={"build": {"baseImage": "debian:12"}})
    seen = snapshot(node(os_version="12.1"), node("node-b", os_version="12.1"), drivers=files.snapshot.drivers)
    cluster = of_snapshot(files, seen, VERSIONS, VERSIONS)
    item, notes = resolved(cluster)
    assert item.target.os_version == "12.1"
    assert notes == ("built for debian:12.1, which the cluster has recorded for this kernel, not for debian:12",)


def test_a_source_that_only_the_snapshot_knows_cannot_be_built() -> None:
    """It has a digest of it: the file must be given."""
    driver = driver_container.parse(driver_object())
    without = of_files((driver,), DriverInputs(GivenObjects()), VERSIONS)
    known = replace(snapshot(node()), sources={driver.key: SourceFiles(files={}, known_digest=source_digest(SOURCE))})
    cluster = of_snapshot(without, known, VERSIONS, VERSIONS)
    item = cluster.item(driver, spec_of(driver), target(KERNEL))
    words = "ConfigMap driverwright/edu-source is in none of the files: give it with --config-map edu-source=DIRECTORY"
    assert words in getattr(item, "message", "")
