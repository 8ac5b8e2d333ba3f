"""``doctor`` asks a real API server: permissions, definitions and clock as they are, and nothing is written."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driver_builder.cli import main
from kube_api.client import Client
from kube_api.connection import Response
from kube_api.resources import (
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    NODES,
    SECRETS,
)
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import (
    admin,
    as_service_account,
    create_quietly,
    documents,
    install,
    make_namespace,
)

Json = dict[str, Any]

NAMESPACE = "doctor"
"""Of the drivers, beside the controller's: its Role is missing at first."""
HOME = "driverwright"
SECRET = "pony-in-a-secret"


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Install the product, its controller for two namespaces, and a driver with a Secret in the second one."""
    client = admin(control_plane_ground)
    install(client)
    make_namespace(client, NAMESPACE)
    (deployment,) = documents("driver-builder/deployment.yaml")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["run", f"--namespace={HOME}", f"--namespace={NAMESPACE}"]
    container["env"].append({"name": "PASSPHRASE", "value": SECRET})
    path = DEPLOYMENTS.path(namespace=HOME, name="driver-builder")
    client.apply(path, deployment, field_manager="integration-test")
    create_quietly(client, NODES.path(), {"metadata": {"name": "doctor-node", "labels": factories.node_labels()}})
    driver = factories.driver_object(namespace=NAMESPACE, finalizer=False, spec_changes={"image": "127.0.0.1:1/x/y"})
    create_quietly(client, DRIVER_CONTAINERS.path(namespace=NAMESPACE), {**driver, "metadata": {"name": "edu"}})
    create_quietly(
        client, SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "s"}, "stringData": {"password": SECRET}}
    )
    yield client
    client.delete(path)
    client.delete(NODES.path(name="doctor-node"))
    client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"))


def examined(ground: Testbed, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """Run the command as the administrator; return what it found, by check."""
    assert main.main(["doctor", "--kubeconfig", str(ground.kubeconfig), "-o", "json", *words]) == 1
    found: dict[str, list[str]] = {}
    for item in json.loads(capsys.readouterr().out)["findings"]:
        found.setdefault(item["check"], []).append(f"{item['verdict']}: {item['found']}")
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note down the method of each request to the API server, without access reviews."""
    noted: list[str] = []
    send = Client._send

    def noting(client: Client, method: str, path: str, **more: Any) -> Response:
        noted.extend([] if path.endswith("accessreviews") else [method])
        return send(client, method, path, **more)

    monkeypatch.setattr(Client, "_send", noting)
    return noted


def test_a_fresh_installation_is_examined(
    control_plane_ground: Testbed, root: Client, capsys: pytest.CaptureFixture[str], sent: list[str]
) -> None:
    """What is there is found there, what is missing is named, and nothing is written."""
    assert root
    sent.clear()
    found = examined(control_plane_ground, capsys)
    assert found["clock"] == ["ok: this clock and the API server's differ by less than 5 s"]
    assert found["definitions"] == [
        "ok: drivercontainers.driverwright.io v1alpha1 is the one of this version",
        "ok: nodefeaturerules.nfd.k8s-sigs.io v1alpha1 is served",
        "ok: nodefeatures.nfd.k8s-sigs.io v1alpha1 is served",
    ]
    assert "driver-builder: 0 of 1 available" in found["controller"][0]
    assert "there is no Lease driverwright/driver-builder" in found["lease"][0]
    assert found["drivers"] == ["ok: 1 DriverContainer, with valid specs"]
    assert (
        "FAILED: 127.0.0.1:1/x/y (doctor/edu): registry 127.0.0.1:1 has the address 127.0.0.1" in found["registry"][0]
    )
    assert set(sent) == {"GET"}


def test_permissions_are_those_that_the_api_server_grants(
    control_plane_ground: Testbed, root: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of ``deploy/`` suffice in its namespace; in a further one all of the Role are missing until it is there."""
    (missing,) = examined(control_plane_ground, capsys)["rights"]
    assert f"may not, in namespace {NAMESPACE}: get drivercontainers.driverwright.io" in missing
    for obj in documents("driver-builder/rbac.yaml"):
        if obj["kind"] in ("Role", "RoleBinding") and obj["metadata"]["name"] == "driver-builder":
            plural = {"Role": "roles", "RoleBinding": "rolebindings"}[obj["kind"]]
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{plural}"
            create_quietly(root, path, {**obj, "metadata": {"name": "driver-builder"}})

    def are_granted() -> bool:
        # The API server reads its roles from a cache.
        (found,) = examined(control_plane_ground, capsys)["rights"]
        return found.startswith("ok: service account driverwright/driver-builder has all ")

    wait_for("all rights", are_granted)


def test_the_controllers_own_account_can_examine_itself(
    control_plane_ground: Testbed, root: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no more rights than it has: what it may not read is unknown, and nothing fails for that."""
    assert root
    account = as_service_account(control_plane_ground, HOME, "driver-builder")
    monkeypatch.setattr(Client, "from_environment", lambda *_words, **_more: account)
    assert main.main(["doctor", "-o", "json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    said = {item["check"]: item["verdict"] for item in findings}
    assert (said["rights"], said["definitions"], said["controller"]) == ("ok", "unknown", "unknown")
    assert "the identity that doctor runs with has all" in json.dumps(findings)


def test_a_report_of_a_real_cluster_has_no_secret(
    control_plane_ground: Testbed, root: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It has the objects as the API server returns them, without the values of Secrets and variables."""
    assert root
    path = tmp_path / "report.tar.gz"
    examined(control_plane_ground, capsys, "--report", str(path))
    with tarfile.open(path) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert {"snapshot.json", "nodes.json", "doctor/drivercontainers.json", "doctor/events.json"} <= texts.keys()
    assert json.loads(texts["doctor/drivercontainers.json"])["items"][0]["metadata"]["name"] == "edu"
    assert "PASSPHRASE" in texts["deployments.json"]
    assert SECRET not in "".join(texts.values())
