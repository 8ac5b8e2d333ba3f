"""Certificates that modules are signed with are read; keys are not, before a build is carried out."""

import base64

from driver_builder.cluster.observe import Observer
from driver_builder.cluster.snapshot_file import from_document
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import CertificateMissing, SigningCertificate, Snapshot
from kube_api.resources import SECRETS
from tests.support.driver_builder.factories import NAMESPACE, NOW
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.module_signing import a_signer, key_bytes
from tests.support.driver_builder.snapshot_files import written
from tests.support.driver_builder.worlds import DRIVER_PATH, small_world

OURS = a_signer("ours")
SIGNING = {"keySecretRef": {"name": "key"}, "certificateSecretRef": {"name": "public"}}


def signed_world() -> World:
    """A world with a driver whose modules are to be signed, everywhere with one Secret and somewhere with another."""
    world = small_world()
    rules = [{"literal": "9.9", "signing": {**SIGNING, "certificateSecretRef": {"name": "gone"}}}, {"regexp": ".*"}]
    world.client.patch(DRIVER_PATH, {"spec": {"signing": SIGNING, "kernelMappings": rules}})
    data = {"cert": base64.b64encode(OURS.pem).decode(), "key": base64.b64encode(key_bytes(OURS)).decode()}
    world.client.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "public"}, "data": data})
    return world


def observed(world: World) -> Snapshot:
    """Observe a world."""
    return world.images().read(Observer(world.client, namespaces=(NAMESPACE,), clock=lambda: NOW).observe())


def test_the_certificates_of_spec_and_mappings_are_read() -> None:
    """Each by its Secret; one that is missing is part of the picture."""
    seen = observed(signed_world()).certificates
    assert seen[f"{NAMESPACE}/public"] == SigningCertificate(der=OURS.der)
    assert isinstance(seen[f"{NAMESPACE}/gone"], CertificateMissing)


def test_a_driver_waits_for_its_certificate_and_goes_on_when_it_is_there() -> None:
    """Without a build in between."""
    world = signed_world()
    secret = world.client.objects.pop(SECRETS.path(namespace=NAMESPACE, name="public"))
    world.settle()
    (target,) = world.status()["targets"]
    assert (target["state"], target["reason"]) == ("Pending", "SigningCertificateMissing")
    world.client.create(SECRETS.path(namespace=NAMESPACE), secret)
    world.settle()
    (target,) = world.status()["targets"]
    assert target["state"] == "Ready"


def test_a_snapshot_on_file_has_the_certificate_and_no_key() -> None:
    """The same plan is made of it, and nothing in it is secret."""
    seen, document = written(signed_world())
    again, settings = from_document(document)
    assert again.certificates == seen.certificates
    assert [str(action) for action in plan(again, settings).actions] == [
        str(action) for action in plan(seen, settings).actions
    ]
    assert key_bytes(OURS).decode().splitlines()[1] not in str(document)
