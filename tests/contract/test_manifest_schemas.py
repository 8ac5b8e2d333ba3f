"""Every object that the chart renders is one that Kubernetes knows, from 1.28 to the newest whose schemas there are.

Strictly: an unknown field is refused, as ``kubectl apply`` does. The schemas are those of ``kubernetes-validate``
(decision 125); kinds of the Prometheus Operator have their own in ``tests/data/monitoring_schemas.yaml``.
"""

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kubernetes_validate import utils as schemas

from driver_builder.builds.job.job_manifest import JobSettings, JobTask, job
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import Repository
from driver_builder.prebuild import job_kernel_discovery
from tests.contract.chart import VALUES, rendered
from tests.support.yaml_files import read_documents, read_yaml
from tests.unit.driver_builder.builds.job.test_job_manifest import action

Json = dict[str, Any]

DATA = Path(__file__).parents[1] / "data"
DEPLOY = Path(__file__).parents[2] / "deploy"
OLDEST = 28
NEWEST = int(schemas.latest_version().split(".")[1])
MONITORING = read_yaml((DATA / "monitoring_schemas.yaml").read_text())
POLICIES = {"ValidatingAdmissionPolicy": 30, "ValidatingAdmissionPolicyBinding": 30}
"""Kinds of ours by the first minor version that has them."""


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    """Let the package read each file of schemas once: it would read those of a version anew for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "all_versions", functools.cache(schemas.all_versions))
        # What one version has, and no more: the definitions of all of them would take much memory.
        patch.setattr(schemas, "schema_contents", functools.lru_cache(maxsize=50)(schemas.schema_contents))
        yield


@functools.cache
def objects() -> list[Json]:
    """Return what defaults and options render, the definitions, and drivers' plugins; what is alike once."""
    definitions = [item for path in sorted(DEPLOY.glob("crds/*.yaml")) for item in read_documents(path.read_text())]
    found: list[Json] = []
    plugins = [item for path in sorted(DATA.glob("golden_plugins/*")) for item in read_documents(path.read_text())]
    for item in (*(item for of in VALUES for item in rendered(of)), *definitions, *plugins):
        if item not in found:
            found.append(item)
    return found


def is_monitoring(item: Json) -> bool:
    """Tell whether it is the Prometheus Operator's."""
    return str(item["apiVersion"]).startswith("monitoring.coreos.com/")


def check_monitoring(item: Json) -> None:
    """Raise where the object is not what the operator's definition says."""
    schema = {**MONITORING[item["kind"]], "definitions": MONITORING["definitions"]}
    jsonschema.Draft202012Validator(schema).validate(item)


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
def test_kubernetes_knows_every_field(minor: int) -> None:
    """Of the defaults and of each option; a policy only where the server has the kind."""
    unknown = set()
    for item in objects():
        if is_monitoring(item):
            continue
        try:
            assert schemas.validate(item, f"1.{minor}", strict=True) == f"1.{minor}"
        except schemas.SchemaNotFoundError:
            unknown.add(item["kind"])
    assert unknown == {kind for kind, first in POLICIES.items() if minor < first}


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
def test_kubernetes_knows_every_field_of_our_jobs(minor: int) -> None:
    """Those of builds and of kernel discoveries, as they are made for that version."""
    task = JobTask(key="k", toolchain=ImageRef("r.example", "drivers/edu", "t"))
    settings = JobSettings(image="b", hand_over_image="h")
    asking = job_kernel_discovery.manifest(
        Repository("debian", "debian:12", "amd64"), "drivers", job_kernel_discovery.DiscoveryPod(), minor=minor
    )
    for item in (job(action(), settings, task=task, minor=minor), asking):
        assert schemas.validate(item, f"1.{minor}", strict=True) == f"1.{minor}"


@pytest.mark.parametrize("of", ["containers", "volumes", "securityContext"])
def test_a_misspelt_field_deep_in_a_pod_is_found(of: str) -> None:
    """So the test above is strict at each depth."""
    (item,) = [item for item in rendered("defaults") if item["kind"] == "Deployment"]
    item = copy.deepcopy(item)
    part = item["spec"]["template"]["spec"][of]
    (part[0] if isinstance(part, list) else part)["nmae"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="nmae"):
        schemas.validate(item, f"1.{NEWEST}", strict=True)


def test_monitoring_objects_are_what_the_operator_defines() -> None:
    """Every one that the options render."""
    found = [item for item in objects() if is_monitoring(item)]
    assert {item["kind"] for item in found} >= {"PodMonitor"}
    for item in found:
        check_monitoring(item)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"selector": {"matchLabel": {}}}, "matchLabel"),
        ({"podMetricsEndpoints": [{"port": "http", "interval": "often"}]}, "often"),
        ({"podMetricsEndpoints": [{"port": 8080}]}, "8080"),
    ],
    ids=str,
)
def test_a_monitor_with_a_mistake_is_found(change: Json, word: str) -> None:
    """A field that is misspelt, a duration that is none, a port without a name."""
    (item,) = [item for item in rendered("everything") if item["kind"] == "PodMonitor"]
    with pytest.raises(jsonschema.ValidationError, match=word):
        check_monitoring({**item, "spec": {**item["spec"], **change}})
