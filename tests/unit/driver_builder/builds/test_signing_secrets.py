"""Keys and certificates out of Secrets, and what is said of those that are missing or wrong."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import BuildRequest, Signing, SourceFiles
from driver_builder.snapshot.snapshot import CertificateMissing, SigningCertificate
from kube_api.resources import SECRETS
from tests.support.driver_builder.factories import NAMESPACE, target
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.module_signing import a_signer, key_bytes

OURS, OTHER, CURVE = a_signer("ours"), a_signer("other"), a_signer("curve", is_rsa=False)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE_KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


def secrets(**contents: dict[str, bytes]) -> SigningSecrets:
    """Secrets with these entries, by name."""
    client = MemoryClient()
    for name, entries in contents.items():
        data = {entry: base64.b64encode(content).decode() for entry, content in entries.items()}
        client.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": name}, "data": data})
    return SigningSecrets(client, clock=lambda: NOW)


def request(**changes: Any) -> BuildRequest:
    """A request whose modules and image are signed."""
    fields: dict[str, Any] = {
        "recipe": "k",
        "driver": f"{NAMESPACE}/edu",
        "version": "1",
        "target": target(),
        "template": "debian",
        "base_image": "debian",
        "source": SourceFiles(files={}),
        "modules": (),
        "signing": Signing(key_secret="modules", certificate_secret="public", image_key_secret="images"),
        "signing_certificate": OURS.der,
    }
    return BuildRequest(**{**fields, **changes})


@pytest.mark.parametrize("entry", ["cert", "tls.crt"])
@pytest.mark.parametrize("content", [pytest.param(OURS.pem, id="PEM"), pytest.param(OURS.der, id="DER")])
def test_a_certificate_is_the_same_whatever_it_is_wrapped_in(entry: str, content: bytes) -> None:
    """Another wrapping is no reason to build anything again."""
    known = secrets(public={entry: content, "tls.key": b"secret"})
    assert known.certificate(NAMESPACE, "public") == SigningCertificate(der=OURS.der)


@pytest.mark.parametrize(
    ("entries", "is_invalid", "message"),
    [
        pytest.param(None, False, "create secret generic public --from-file=cert=FILE", id="no Secret"),
        pytest.param({"ca.crt": b"x"}, False, "has neither cert nor tls.crt (it has ca.crt)", id="another entry"),
        pytest.param({"cert": b""}, False, "has neither cert nor tls.crt", id="empty entry"),
        pytest.param({"cert": b"x"}, True, "Secret driverwright/public: the signing certificate cannot", id="no X.509"),
        pytest.param({"cert": CURVE.pem}, True, "key that is not RSA; make an RSA key", id="elliptic curve"),
    ],
)
def test_a_certificate_that_is_not_there_is_reported(
    entries: dict[str, bytes] | None, is_invalid: bool, message: str
) -> None:
    """With the place, and the remedy."""
    known = secrets() if entries is None else secrets(public=entries)
    found = known.certificate(NAMESPACE, "public")
    assert isinstance(found, CertificateMissing)
    assert found.is_invalid is is_invalid
    assert message in found.message


@pytest.mark.parametrize("entry", ["key", "tls.key"])
def test_keys_are_read(entry: str) -> None:
    """Those of modules, with the certificate that the plan was made with, and those of images."""
    known = secrets(modules={entry: key_bytes(OURS)}, images={entry: IMAGE_KEY})
    signer = known.module_signer(NAMESPACE, request())
    assert signer is not None
    assert signer.certificate == OURS.certificate
    assert known.image_key(NAMESPACE, request()) is not None


@pytest.mark.parametrize("signing", [None, Signing()])
def test_nothing_is_read_where_nothing_is_signed(signing: Signing | None) -> None:
    """A driver without spec.signing causes no read of a Secret."""
    known, plain = secrets(), request(signing=signing, signing_certificate=None)
    assert known.module_signer(NAMESPACE, plain) is None
    assert known.image_key(NAMESPACE, plain) is None
    assert known.texts(NAMESPACE, plain) == ()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        pytest.param({}, "signing.keySecretRef: Secret driverwright/modules does not exist", id="missing"),
        pytest.param({"modules": {"cert": b"x"}}, "has neither key nor tls.key", id="another entry"),
        pytest.param(
            {"modules": {"key": b"x"}}, "driverwright/modules: the signing key is not a private key", id="no key"
        ),
        pytest.param({"modules": {"key": key_bytes(OTHER)}}, "do not match", id="another key"),
    ],
)
def test_a_key_of_modules_that_cannot_be_used_is_a_failure_of_signing(
    contents: dict[str, dict[str, bytes]], message: str
) -> None:
    """An unusable module key is a signing failure that names the Secret."""
    with pytest.raises(BuildFailed, match=message) as caught:
        secrets(**contents).module_signer(NAMESPACE, request())
    assert caught.value.reason is Reason.SIGNING_FAILED


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        pytest.param({}, "signing.imageKeySecretRef: Secret driverwright/images does not exist", id="missing"),
        pytest.param({"images": {"key": key_bytes(OURS)}}, "driverwright/images: .* not on the curve P-256", id="RSA"),
    ],
)
def test_a_key_of_images_that_cannot_be_used_is_a_failure_of_signing(
    contents: dict[str, dict[str, bytes]], message: str
) -> None:
    """An unusable image key is a signing failure that names the Secret."""
    with pytest.raises(BuildFailed, match=message) as caught:
        secrets(**contents).image_key(NAMESPACE, request())
    assert caught.value.reason is Reason.SIGNING_FAILED


def test_every_line_of_a_key_is_kept_out_of_logs() -> None:
    """Not the armour around it; a key in DER as it would be written; nothing of a Secret that is missing."""
    der = key_bytes(OURS, serialization.Encoding.DER)
    known = secrets(modules={"key": key_bytes(OURS)}, images={"key": der})
    texts = known.texts(NAMESPACE, request())
    assert key_bytes(OURS).decode().splitlines()[1] in texts
    assert base64.b64encode(der).decode() in texts
    assert not any("BEGIN" in text for text in texts)
    assert secrets().texts(NAMESPACE, request()) == ()
