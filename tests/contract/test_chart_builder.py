"""Values of the controller: who builds, and what it may read and do."""

import base64
from typing import Any

import helm_python as helm
import pytest

from demo.deploy import ENGINE_PATCH, patched
from driver_builder.registry.credentials import Credentials, parse_docker_config
from tests.contract.chart import (
    ACCOUNTS,
    VALUES,
    Json,
    container,
    environment,
    one,
    pod,
    rendered,
)
from tests.support.yaml_files import read_documents
from tools import manifests


def test_jobs_build_unless_an_engine_is_asked_for() -> None:
    """The controller's pod is what Pod Security calls restricted then, on any node."""
    spec, variables = pod(rendered("defaults"), "driver-builder"), environment(rendered("defaults"), "driver-builder")
    assert "nodeSelector" not in spec
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 65534)
    assert variables["DRIVER_BUILDER_BUILDER"] == "job"
    assert "DOCKER_HOST" not in variables


def test_the_patch_for_an_engine_makes_what_the_value_makes() -> None:
    """For those who use the manifests."""
    (patch,) = read_documents(ENGINE_PATCH.read_text())
    deployment = one(rendered("defaults"), "Deployment", "driver-builder")
    assert by_name(patched(deployment, patch)) == by_name(one(rendered("engine"), "Deployment", "driver-builder"))


def test_an_engine_beside_the_controller_is_reached_by_a_socket_that_both_have() -> None:
    """On any node, without a path of it, and by no port; the engine's container alone is privileged."""
    spec = pod(rendered("side car"), "driver-builder")
    program, engine = spec["containers"]
    (shared,) = [mount for mount in program["volumeMounts"] if mount in engine["volumeMounts"]]
    assert (
        environment(rendered("side car"), "driver-builder")["DOCKER_HOST"]
        == f"unix://{shared['mountPath']}/docker.sock"
    )
    assert engine["args"] == ["dockerd", f"--host=unix://{shared['mountPath']}/docker.sock"]
    assert [item["securityContext"].get("privileged") for item in (program, engine)] == [None, True]
    assert engine["resources"]["limits"]["memory"]
    assert "nodeSelector" not in spec
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert all(volume["emptyDir"].get("sizeLimit") for volume in spec["volumes"] if volume["name"] != shared["name"])


def by_name(value: Any) -> Any:
    """Write lists whose items have names as objects: their order says nothing."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {item.get("mountPath") or item.get("name") or str(item): by_name(item) for item in value}
    return {name: by_name(item) for name, item in value.items()} if isinstance(value, dict) else value


def test_a_remote_engine_needs_certificates_and_no_node() -> None:
    """Nor a socket; the variable for certificates names the folder of the Secret."""
    found = rendered("everything")
    spec, variables = pod(found, "driver-builder"), environment(found, "driver-builder")
    assert variables["DOCKER_HOST"] == "tcp://engine:2376"
    assert spec["nodeSelector"] == {"c": "d"}
    assert {name for volume in spec["volumes"] for name in volume} == {"name", "emptyDir", "secret", "configMap"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(found, "driver-builder")["volumeMounts"]}
    assert variables["DOCKER_CERT_PATH"] == mounts["engine-certificates"]
    assert variables["DOCKER_TLS_VERIFY"]
    assert variables["DRIVER_BUILDER_REGISTRY_CA_FILE"] == f"{mounts['registry-ca']}/ca.crt"


@pytest.mark.parametrize(
    "engine",
    [{"host": "tcp://engine:2376"}, {"certSecret": "engine"}, {"sideCar": {"image": "docker:dind"}}],
    ids=lambda engine: next(iter(engine)),
)
def test_an_engine_that_nothing_builds_with_is_refused(engine: Json) -> None:
    """Values of before, when an engine was the default, are not taken for Jobs without a word."""
    with pytest.raises(helm.HelmRenderError, match=r"set it to docker to build with this engine"):
        manifests.render({"driverBuilder": {"engine": engine}})
    assert manifests.render({"driverBuilder": {"engine": engine, "builder": "docker"}})


def test_a_further_namespace_gets_what_the_first_one_has() -> None:
    """The Role with the same rules, its binding to the controller's account, and the account of build Jobs."""
    found = rendered("everything")
    assert container(found, "driver-builder")["args"] == [
        "run", "--namespace=driverwright", "--namespace=team", "--node-feature-namespaces=gpu-operator,nfd",
        "--max-builds=2",
    ]  # fmt: skip
    here, there = (
        {
            (item["kind"], item["metadata"]["name"]): {key: part for key, part in item.items() if key != "metadata"}
            for item in found
            if item["metadata"].get("namespace") == namespace
        }
        for namespace in ("driverwright", "team")
    )
    assert there.keys() == {
        ("Role", "driver-builder"), ("RoleBinding", "driver-builder"), ("ServiceAccount", "driver-builder-job"),
    }  # fmt: skip
    assert there.items() <= here.items()


@pytest.mark.parametrize(
    ("of", "namespaces", "flags"),
    [
        ("defaults", ["driverwright"], []),
        ("everything", ["gpu-operator", "nfd"], ["--node-feature-namespaces=gpu-operator,nfd"]),
        ("nobody's labels", [], ["--node-feature-namespaces=none"]),
    ],
)
def test_the_controller_reads_node_features_where_its_flag_says(
    of: str, namespaces: list[str], flags: list[str]
) -> None:
    """A Role in each of these namespaces, which allows nothing else, in the order that decides who wins."""
    name = "driver-builder-node-features"
    roles = [item for item in rendered(of) if (item["kind"], item["metadata"]["name"]) == ("Role", name)]
    assert [item["metadata"]["namespace"] for item in roles] == namespaces
    bindings = [item for item in rendered(of) if (item["kind"], item["metadata"]["name"]) == ("RoleBinding", name)]
    assert [item["metadata"]["namespace"] for item in bindings] == namespaces
    for role in roles:
        granted = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
        assert granted == {"nodefeatures": ["list", "watch"], "events": ["create", "get", "patch"]}
    given = [flag for flag in container(rendered(of), "driver-builder")["args"] if "node-feature" in flag]
    assert given == flags


@pytest.mark.parametrize(
    ("of", "expected", "variable"),
    [
        pytest.param("defaults", {}, None, id="none by default"),
        pytest.param("everything", {}, None, id="none in other namespaces"),
        pytest.param("accounts", {"driverwright": ["gpu"], "team": ["1", "gpu"]}, ",".join(ACCOUNTS), id="these"),
        pytest.param("dra", {"driverwright": ["dra"], "team": ["gpu"]}, "team/gpu", id="and those of DRA drivers"),
    ],
)
def test_the_controller_reads_the_accounts_that_plugins_may_have(
    of: str, expected: dict[str, list[str]], variable: str | None
) -> None:
    """By their names, in its own namespaces, and whether each exists is all it asks."""
    found = {
        role["metadata"]["namespace"]: (rule["resourceNames"], rule["verbs"])
        for role in rendered(of)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "serviceaccounts" in rule["resources"]
    }
    assert found == {namespace: (accounts, ["get"]) for namespace, accounts in expected.items()}
    assert environment(rendered(of), "driver-builder").get("DRIVER_BUILDER_DEVICE_AGENT_ACCOUNTS") == variable


@pytest.mark.parametrize(
    ("of", "resources", "daemon_sets"),
    [
        pytest.param("defaults", None, None, id="nothing"),
        pytest.param("drains for agents", "nvidia.com/gpu*,nvidia.com/mig-*", "driverwright/device-agent", id="these"),
    ],
)
def test_what_device_agents_may_have_drained_is_named(of: str, resources: str | None, daemon_sets: str | None) -> None:
    """By default nothing is."""
    found = environment(rendered(of), "driver-builder")
    assert found.get("DRIVER_BUILDER_AGENT_DRAIN_RESOURCES") == resources
    assert found.get("DRIVER_BUILDER_AGENT_DAEMONSETS") == daemon_sets


@pytest.mark.parametrize("of", VALUES)
def test_the_controller_sees_resource_slices_only_where_a_dra_driver_may_have_an_account(of: str) -> None:
    """To list and watch them; the flag names the accounts."""
    found = [
        (role["metadata"]["name"], rule["verbs"])
        for role in rendered(of)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "resourceslices" in rule["resources"]
    ]
    accounts = VALUES[of].get("driverBuilder", {}).get("draDriverAccounts", [])
    assert found == ([("driverwright-driver-builder-dra", ["list", "watch"])] if accounts else [])
    if of != "worker only":
        variable = environment(rendered(of), "driver-builder").get("DRIVER_BUILDER_DRA_DRIVER_ACCOUNTS")
        assert variable == (",".join(accounts) or None)


def test_pull_secrets_are_given_to_programs_and_build_jobs() -> None:
    """Programs in their pods, Jobs by their account."""
    found, wanted = rendered("everything"), [{"name": "pull"}]
    names = ("nfd-worker", "nfd-worker-gpu", "driver-builder", "device-agent")
    assert [pod(found, name)["imagePullSecrets"] for name in names] == [wanted] * 4
    jobs = [item for item in found if item["metadata"]["name"] == "driver-builder-job"]
    assert [item["imagePullSecrets"] for item in jobs] == [wanted] * 2


def test_registry_credentials_become_secrets_that_our_registry_client_reads() -> None:
    """Of the type that kubelets and ``spec.registry.secretRef`` take."""
    secret = one(rendered("everything"), "Secret", "push")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    found = parse_docker_config(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert found == {"r.example.com": Credentials(username="u", password="p")}
