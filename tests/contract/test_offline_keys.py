"""The build keys of ``build`` are those of the controller: for every driver that golden files are kept of."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder import config
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.builds.templates import templates
from driver_builder.cli.commands import build_command
from driver_builder.cli.offline import given_files, offline_cluster
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.model.setting import Group
from driver_builder.nodes.changes import StartBuild
from driver_builder.prebuild.preflight import parse_target
from driver_builder.snapshot.snapshot import SigningCertificate
from driver_builder.targets.desired_target import ImageTarget, TargetToBuild, TemplateVersions
from tests.support.driver_builder.factories import SOURCE
from tests.support.driver_builder.golden_cases import ABSENT, CASES, OWN_TEMPLATE, Case, actions
from tests.support.driver_builder.module_signing import a_signer

SIGNER = a_signer("ours")


def built_by_controller(case: Case) -> StartBuild | None:
    """Return what a controller builds, with a certificate that can be read from a Secret."""
    certificates = {f"{case.namespace}/signing": SigningCertificate(der=SIGNER.der)}
    planned = actions(replace(case.seen, certificates=certificates), ABSENT)
    return next((item for item in planned if isinstance(item, StartBuild)), None)


def files_of(case: Case, folder: Path) -> list[str]:
    """Write the case as files; returns the flags that name them."""
    (container,) = case.seen.drivers
    metadata: dict[str, Any] = {"name": container.name, "namespace": container.namespace}
    if case.rebuild:
        metadata["annotations"] = {"driverwright.io/rebuild": case.rebuild}
    spec = {"version": "1.0.0", "nodeSelector": {"pool": "edu"}, "image": "registry.example.com:5000/drivers/edu",
            "source": {"configMap": {"name": "edu-source"}}, "module": {"names": ["edudrv"]}, **case.spec}  # fmt: skip
    manifest = {"apiVersion": "driverwright.io/v1alpha1", "kind": "DriverContainer", "metadata": metadata, "spec": spec}
    files = {"edu-source": SOURCE.files, "mine": {"Dockerfile": OWN_TEMPLATE.encode()}, "signing": {"cert": SIGNER.pem}}
    for name, contents in files.items():
        (folder / name).mkdir()
        for file, content in contents.items():
            (folder / name / file).write_bytes(content)
    (folder / "driver.yaml").write_text(yaml.safe_dump(manifest))
    objects = [word for name in ("edu-source", "mine") for word in ("--config-map", f"{name}={folder / name}")]
    return ["-f", str(folder / "driver.yaml"), *objects, "--secret", f"signing={folder / 'signing'}"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_key_is_the_controllers(name: str, tmp_path: Path) -> None:
    """From files, for a kernel that no node runs: the request of the plan for a node, and so its key and tag."""
    case = CASES[name]
    wanted = built_by_controller(case)
    parser = argparse.ArgumentParser()
    config.add_flags(parser, Group.CONNECTION)
    build_command.add_flags(parser)
    flags = parser.parse_args([*files_of(case, tmp_path), "--kernel", case.kernel, "--os", case.os])
    given = given_files.read(flags, case.namespace)
    versions = TemplateVersions(versions=templates.template_versions())
    cluster = offline_cluster.of_files(given.drivers, DriverInputs(given.objects), versions)
    (driver,) = given.drivers
    assert isinstance(driver.spec, DriverSpec)
    item = cluster.item(driver, driver.spec, parse_target(kernel=case.kernel, os=case.os, architecture="amd64"))
    assert isinstance(item, ImageTarget)
    ours = (item.request.key, item.image) if isinstance(item, TargetToBuild) else None
    assert ours == ((wanted.request.key, wanted.image) if wanted else None)
