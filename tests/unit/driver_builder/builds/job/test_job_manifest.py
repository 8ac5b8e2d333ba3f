"""A build's Job and ConfigMap: what each container is given, and above all what not."""

import base64
import gzip
import os
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import BuildFailed
from driver_builder.builds.job.job_manifest import (
    FINGERPRINT_ANNOTATION,
    LOCAL_TOOLCHAIN,
    SCRIPTS,
    JobSettings,
    JobTask,
    config_map,
    job,
)
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.objects.tolerations import OURS
from tests.support.driver_builder import factories

Json = dict[str, Any]

SETTINGS = JobSettings(image="r/buildah:1", hand_over_image="r/driver-builder:1")


def action(**changes: Any) -> StartBuild:
    """Make a build of a driver whose registry wants a password."""
    request = BuildRequest(
        recipe="debian:1",
        driver=DriverKey("driverwright/edu"),
        version="1",
        target=factories.target(architecture="arm64"),
        template="debian",
        base_image="debian:bookworm-slim",
        source=SourceFiles(files={}),
        modules=(ModuleSpec(name="edudrv"),),
        deadline_seconds=90.5,
    )
    given: Json = {
        "namespace": "driverwright",
        "request": request,
        "image": ImageRef("registry.example:5000", "drivers/edu", "tag"),
        "registry": RegistrySettings(secret="push"),
        "waiting": 1,
        **changes,
    }
    return StartBuild(**given)


KEY = action().request.key


def pod_of(manifest: Json) -> Json:
    """Return the pod's spec."""
    spec: Json = manifest["spec"]["template"]["spec"]
    return spec


def containers(manifest: Json) -> tuple[Json, Json]:
    """Return the containers ``build`` and ``hand-over``."""
    (build,), (hand_over,) = pod_of(manifest)["initContainers"], pod_of(manifest)["containers"]
    return build, hand_over


def mounts(container: Json) -> dict[str, str]:
    """Return volume by path."""
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def test_the_same_build_is_the_same_job() -> None:
    """A controller that was killed finds it by name; another deadline or image is another Job."""
    made = job(action(), SETTINGS)
    assert made == job(action(), SETTINGS)
    assert made["metadata"]["name"] == f"driver-build-{KEY}"
    other = job(action(build_secrets=("token",)), SETTINGS)
    assert other["metadata"]["name"] == made["metadata"]["name"]
    fingerprints = {item["metadata"]["annotations"][FINGERPRINT_ANNOTATION] for item in (made, other)}
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("minor", "tries", "has_policy", "has_field"),
    [
        pytest.param(None, 0, False, False, id="unknown"),
        pytest.param(20, 0, False, False, id="1.20 replaces deleted pods by itself"),
        pytest.param(25, 0, False, False, id="1.25 drops the policy"),
        pytest.param(26, 1, True, False, id="1.26 keeps the policy"),
        pytest.param(29, 1, True, False, id="1.29"),
        pytest.param(30, 1, True, True, id="1.30 knows AppArmor"),
        pytest.param(37, 1, True, True, id="1.37"),
    ],
)
def test_a_job_has_what_the_server_knows(minor: int | None, tries: int, has_policy: bool, has_field: bool) -> None:
    """A policy for pods that are deleted or evicted, and the field for AppArmor in place of the annotation."""
    task = JobTask(key=KEY, toolchain=TOOLCHAIN)
    made = job(action(), SETTINGS, task=task, minor=minor)
    assert made["spec"]["backoffLimit"] == tries
    assert ("podFailurePolicy" in made["spec"]) is has_policy
    for container in pod_of(made)["initContainers"]:
        assert (container["securityContext"].get("appArmorProfile") == {"type": "Unconfined"}) is has_field
    metadata = made["spec"]["template"]["metadata"]
    expected = () if has_field else ("toolchain", "build")
    assert tuple(name.rpartition("/")[2] for name in metadata.get("annotations", {})) == expected
    assert "appArmorProfile" not in pod_of(made)["containers"][0]["securityContext"]


def test_a_pod_that_the_cluster_ends_is_replaced_and_a_failed_build_is_not() -> None:
    """An eviction costs no attempt, a deletion the one there is; each exit code of our own ends the Job."""
    disruption, own = job(action(), SETTINGS, minor=31)["spec"]["podFailurePolicy"]["rules"]
    assert disruption == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = {"operator": "NotIn", "values": [137, 143]}
    assert own == {"action": "FailJob", "onExitCodes": codes, "onPodConditions": []}


def test_an_upgrade_of_the_server_ends_no_build() -> None:
    """The Job that an earlier version was asked for is the same build."""
    fingerprints = {
        job(action(), SETTINGS, minor=minor)["metadata"]["annotations"][FINGERPRINT_ANNOTATION]
        for minor in (None, 20, 29, 31)
    }
    assert len(fingerprints) == 1


def test_a_job_has_bounds() -> None:
    """One try, the driver's deadline, nodes of the target's architecture, folders that cannot fill a disk."""
    made = job(action(), SETTINGS)
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (0, 91)
    assert made["spec"]["ttlSecondsAfterFinished"] == 3600
    assert pod_of(made)["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod_of(made)["volumes"] if "emptyDir" in volume)
    assert "hostNetwork" not in pod_of(made)
    assert pod_of(made)["tolerations"] == list(OURS)


def test_what_runs_the_source_may_nothing() -> None:
    """No token of a service account, no registry password, no privileges; three capabilities, to map users."""
    made = job(action(), SETTINGS)
    build, _ = containers(made)
    assert pod_of(made)["automountServiceAccountToken"] is False
    assert "registry" not in mounts(build).values()
    assert build["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SETFCAP", "SETGID", "SETUID"]}
    assert build["securityContext"]["allowPrivilegeEscalation"] is False
    assert "privileged" not in build["securityContext"]


def test_what_may_push_is_nobody_and_runs_nothing_of_the_driver() -> None:
    """It sees the finished files, read only, and the registry's Secret."""
    _, hand_over = containers(job(action(build_secrets=("token",)), SETTINGS))
    assert set(mounts(hand_over)) == {"/context", "/out", "/registry"}
    assert all(mount["readOnly"] for mount in hand_over["volumeMounts"])
    assert hand_over["securityContext"]["runAsNonRoot"] is True
    assert hand_over["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    words = ["--host=registry.example:5000", "--repository=drivers/edu", "--credentials=/registry"]
    assert set(words) <= set(hand_over["command"])


def test_a_registry_without_a_password_needs_no_secret() -> None:
    """And plain HTTP is only spoken when asked for."""
    made = job(action(registry=RegistrySettings(plain_http=True)), SETTINGS)
    _, hand_over = containers(made)
    assert "registry" not in {volume["name"] for volume in pod_of(made)["volumes"]}
    assert "--plain-http" in hand_over["command"]
    assert not any(word.startswith("--credentials") for word in hand_over["command"])
    assert "--plain-http" not in containers(job(action(), SETTINGS))[1]["command"]


def test_secrets_are_files_of_the_build_alone() -> None:
    """Mounted into each command of the build, below /run/secrets, and no part of a layer."""
    made = job(action(build_secrets=("token", "key.pem")), SETTINGS, authfile="/secrets/token/.dockerconfigjson")
    build, _ = containers(made)
    assert mounts(build)["/secrets/token"] == "secret-0"
    assert mounts(build)["/secrets/key.pem"] == "secret-1"
    assert {
        "--volume=/secrets/token:/run/secrets/token:ro",
        "--volume=/secrets/key.pem:/run/secrets/key.pem:ro",
        "--authfile=/secrets/token/.dockerconfigjson",
    } <= set(build["command"])


def test_resources_are_those_of_the_spec() -> None:
    """All of them, for a request that is larger than its limit would be refused."""
    asked = {"limits": {"memory": "256Mi"}}
    assert containers(job(action(resources=asked), SETTINGS))[0]["resources"] == asked
    assert set(containers(job(action(), SETTINGS))[0]["resources"]["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("own", "requests", "limits"),
    [
        pytest.param({}, {"cpu": "500m", "memory": "256Mi"}, {"cpu": "4", "memory": "256Mi"}, id="nothing of its own"),
        pytest.param(
            {"limits": {"cpu": "2"}},
            {"cpu": "500m", "memory": "256Mi"},
            {"cpu": "2", "memory": "256Mi"},
            id="a limit of its own",
        ),
        pytest.param(
            {"requests": {"cpu": 3}},
            {"cpu": 3, "memory": "256Mi"},
            {"cpu": "4", "memory": "256Mi"},
            id="a request of its own",
        ),
    ],
)
def test_a_build_without_a_limit_gets_the_largest(own: Json, requests: Json, limits: Json) -> None:
    """And requests no more than it would without: Kubernetes would take the limit for the request."""
    settings = replace(SETTINGS, max_resources={"cpu": "4", "memory": "256Mi"})
    made = containers(job(action(resources=own), settings))[0]["resources"]
    assert made == {"requests": requests, "limits": limits}


def test_a_resource_without_a_usual_request_is_not_requested() -> None:
    """Disk is limited, and no node is refused for it; what builds usually request they still do."""
    most = {"ephemeral-storage": "40Gi", "nvidia.com/gpu": "1"}
    made = containers(job(action(), replace(SETTINGS, max_resources=most)))[0]["resources"]
    assert made == {
        "requests": {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "0"},
        "limits": {"ephemeral-storage": "40Gi"},
    }


def test_the_controller_chooses_how_much_disk_a_build_has() -> None:
    """One size for what it works with, one for its result."""
    made = pod_of(job(action(), replace(SETTINGS, work_size="40Gi", output_size="8Gi")))
    sizes = {item["name"]: item["emptyDir"]["sizeLimit"] for item in made["volumes"] if "emptyDir" in item}
    assert sizes == {"work": "40Gi", "out": "8Gi"}


def test_the_controller_chooses_nodes_network_and_ca() -> None:
    """Labels beside the architecture, the node's network where there is none for pods, certificates for both."""
    given = JobSettings(
        image="i", hand_over_image="h", node_selector={"pool": "build"}, host_network=True, ca="-----BEGIN"
    )
    made = job(action(), given)
    build, hand_over = containers(made)
    assert pod_of(made)["nodeSelector"] == {"kubernetes.io/arch": "arm64", "pool": "build"}
    assert pod_of(made)["hostNetwork"] is True
    assert "--cert-dir=/certificates" in build["command"]
    assert mounts(build)["/certificates/ca.crt"] == "context"
    assert "--registry-ca-file=/context/ca.crt" in hand_over["command"]


def test_a_job_tolerates_what_the_spec_names_and_the_controller_sets() -> None:
    """And nothing where neither says anything: the driver pods' default, which is everything, is not for builds."""
    gpu, build = {"key": "gpu", "operator": "Exists"}, {"key": "build", "operator": "Exists"}
    made = job(action(tolerations=(gpu,)), replace(SETTINGS, tolerations=(build,)))
    assert pod_of(made)["tolerations"] == [gpu, build, *OURS]


def test_every_mount_has_its_volume() -> None:
    """Of all containers, with all that can be asked for."""
    made = job(action(build_secrets=("token",)), SETTINGS)
    volumes = {volume["name"] for volume in pod_of(made)["volumes"]}
    assert {name for container in containers(made) for name in mounts(container).values()} == volumes


TOOLCHAIN = ImageRef("registry.example:5000", "drivers/edu", f"sha256:{'0' * 64}")


def test_a_toolchain_is_pulled_before_the_build_and_by_another_container() -> None:
    """With the registry's Secret, which the container that runs the driver's source does not see."""
    made = job(action(), replace(SETTINGS, ca="CA"), task=JobTask(key=KEY, toolchain=TOOLCHAIN))
    plain = job(action(), replace(SETTINGS, ca="CA"))
    pull, build = pod_of(made)["initContainers"]
    assert build == pod_of(plain)["initContainers"][0]
    assert pod_of(made)["containers"] == pod_of(plain)["containers"]
    assert pull["command"] == [
        "/bin/sh",
        "/context/pull.sh",
        str(TOOLCHAIN),
        LOCAL_TOOLCHAIN,
        "--authfile=/registry/.dockerconfigjson",
        "--cert-dir=/certificates",
    ]
    assert set(mounts(pull)) == {"/context", "/building", "/registry", "/certificates/ca.crt"}
    assert [pull[name] for name in ("image", "securityContext", "resources")] == [
        build[name] for name in ("image", "securityContext", "resources")
    ]
    assert "registry" not in mounts(build).values()
    unconfined = made["spec"]["template"]["metadata"]["annotations"]
    assert {name.rpartition("/")[2] for name in unconfined} == {"toolchain", "build"}
    fingerprints = {item["metadata"]["annotations"][FINGERPRINT_ANNOTATION] for item in (made, plain)}
    assert len(fingerprints) == 2


@pytest.mark.parametrize("minor", [None, 20, 29, 31])
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(None, "f6c7ace66c447f47", id="without a toolchain"),
        pytest.param(JobTask(key=KEY, toolchain=TOOLCHAIN), "f7b4606a2a87f360", id="with one"),
    ],
)
def test_an_upgrade_of_the_controller_ends_no_build(task: JobTask | None, expected: str, minor: int | None) -> None:
    """A Job of an earlier version has this fingerprint; another one is deleted, and its build begins anew."""
    assert (
        job(action(), SETTINGS, task=task, minor=minor)["metadata"]["annotations"][FINGERPRINT_ANNOTATION] == expected
    )


def test_a_registry_without_a_password_gives_a_toolchain_to_everybody() -> None:
    """No Secret is mounted that does not exist."""
    made = job(action(registry=RegistrySettings(plain_http=True)), SETTINGS, task=JobTask(key=KEY, toolchain=TOOLCHAIN))
    pull, _ = pod_of(made)["initContainers"]
    assert pull["command"][2:] == [str(TOOLCHAIN), LOCAL_TOOLCHAIN]
    assert set(mounts(pull)) == {"/context", "/building"}


def test_a_toolchain_is_made_by_a_job_of_its_own() -> None:
    """Under another name than the driver's, and handed over compressed."""
    made = job(action(), SETTINGS, task=JobTask(key="toolchain-key", is_toolchain=True))
    build, _ = containers(made)
    assert made["metadata"]["name"] == "driver-build-toolchain-key"
    assert build["env"] == [{"name": "ARCHIVE", "value": "oci-archive"}]
    assert "env" not in containers(job(action(), SETTINGS))[0]
    context = next(volume for volume in pod_of(made)["volumes"] if volume["name"] == "context")
    given = config_map(action(), SETTINGS, context=b"", uid="u", key="toolchain-key")
    assert context["configMap"]["name"] == given["metadata"]["name"] == made["metadata"]["name"]
    assert given["metadata"]["labels"] == made["metadata"]["labels"]


def test_the_config_map_goes_with_its_job() -> None:
    """The context to the byte, the script, and where buildah may pull from."""
    made = config_map(action(registry=RegistrySettings(plain_http=True)), SETTINGS, context=b"tar", uid="u")
    assert made["metadata"]["name"] == f"driver-build-{KEY}"
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": f"driver-build-{KEY}", "uid": "u"}
    ]
    assert gzip.decompress(base64.b64decode(made["binaryData"]["context.tar.gz"])) == b"tar"
    assert all(made["data"][name].startswith("#") for name in SCRIPTS)
    assert 'location = "registry.example:5000"\ninsecure = true' in made["data"]["registries.conf"]
    assert "insecure" not in config_map(action(), SETTINGS, context=b"", uid="u")["data"]["registries.conf"]


def test_a_source_too_large_for_a_config_map_is_refused() -> None:
    """With the size, the limit and the way out."""
    context = os.urandom(1_100_000)
    with pytest.raises(BuildFailed, match="git, an archive, an image or a package"):
        config_map(action(), SETTINGS, context=context, uid="u")
