"""Signing as a real API server sees it: the fields of the CRD, and Secrets that the controller's account may read."""

import base64
from collections.abc import Iterator

import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import BuildRequest, Signing, SourceFiles
from driver_builder.model.driver_key import DriverKey
from kube_api.client import Client
from kube_api.resources import SECRETS
from testbed.testbed import Testbed
from tests.api.test_reconcile import KERNEL, NAMESPACE, Lab
from tests.support.driver_builder.factories import target
from tests.support.driver_builder.module_signing import a_signer, key_bytes
from tests.support.real_parts.cluster_setup import admin, as_service_account, create_quietly, install

OURS, RENEWED = a_signer("ours"), a_signer("renewed")
SIGNING = {"keySecretRef": {"name": "signed-key"}, "certificateSecretRef": {"name": "signed-cert"}}


@pytest.fixture
def lab(control_plane_ground: Testbed) -> Iterator[Lab]:
    """A driver to be signed, and a node for it."""
    install(admin(control_plane_ground))
    lab = Lab(control_plane_ground, "signed", immortal=True)
    lab.add_node("signed-a", KERNEL)
    yield lab
    lab.clean()


def put(client: Client, name: str, entry: str, content: bytes) -> None:
    """Make or change a Secret as an admin does."""
    create_quietly(client, SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": name}})
    data = {entry: base64.b64encode(content).decode()}
    client.patch(SECRETS.path(namespace=NAMESPACE, name=name), {"data": data})


def reason(lab: Lab) -> str:
    """Why the driver's one target is as it is."""
    lab.reconcile()
    (entry,) = lab.status()["targets"]
    return str(entry["reason"])


def test_a_driver_waits_for_its_certificate_and_is_built_anew_for_another(lab: Lab) -> None:
    """Nothing of the spec is pruned; errors are reported, and it continues by itself when they are fixed."""
    rules = [{"literal": "9.9-x", "signing": {"imageKeySecretRef": {"name": "i"}}}, {"regexp": ".*"}]
    lab.apply_driver(signing=SIGNING, kernelMappings=rules)
    kept = lab.root.get(lab.path)["spec"]
    assert (kept["signing"], kept["kernelMappings"]) == (SIGNING, rules)

    assert reason(lab) == "SigningCertificateMissing"
    put(lab.root, "signed-cert", "cert", b"no certificate")
    assert reason(lab) == "InvalidSigningCertificate"
    assert lab.pushed == []

    put(lab.root, "signed-cert", "cert", OURS.pem)
    lab.until("ready", lambda: lab.condition("Ready").get("status") == "True")
    put(lab.root, "signed-cert", "cert", OURS.der)
    lab.reconcile()
    assert len(lab.pushed) == 1
    put(lab.root, "signed-cert", "cert", RENEWED.der)
    lab.until("built with the new one", lambda: len(lab.pushed) == 2)
    assert "SigningCertificateMissing" in lab.events()


def test_the_controllers_account_reads_the_key(lab: Lab, control_plane_ground: Testbed) -> None:
    """By the name that the spec gives, and says what it misses."""
    account = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    request = BuildRequest(
        recipe="k",
        driver=DriverKey(f"{NAMESPACE}/signed"),
        version="1",
        target=target(),
        template="debian",
        base_image="debian",
        source=SourceFiles(files={}),
        modules=(),
        signing=Signing(key_secret="signed-key", certificate_secret="signed-cert"),
        signing_certificate=OURS.der,
    )
    with pytest.raises(BuildFailed, match="Secret driverwright/signed-key does not exist"):
        SigningSecrets(account).module_signer(NAMESPACE, request)
    put(lab.root, "signed-key", "tls.key", key_bytes(OURS))
    signer = SigningSecrets(account).module_signer(NAMESPACE, request)
    assert signer is not None
    assert signer.certificate == OURS.certificate
