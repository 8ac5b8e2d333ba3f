"""Signatures of images as cosign writes and reads them."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import ConfigurationError, RegistryRefused
from driver_builder.model.images import ImageRef
from driver_builder.registry.image_signature import (
    has_signature,
    is_signed,
    parse_private_key,
    payload,
    push_signature,
    sign,
    signature_tag,
)
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, scripted_registry
from tests.support.loopback import LOOPBACK
from tests.support.programs import require_program

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key()
DIGEST = "sha256:" + "a" * 64
IMAGE = ImageRef("r.io", "team/edu", DIGEST)
TAG = "sha256-" + "a" * 64 + ".sig"


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, password: bytes = b"") -> bytes:
    """A key as openssl writes it."""
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A public key as cosign.pub holds it."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def registry() -> Iterator[tuple[RegistryClient, MemoryRegistry]]:
    """A registry that keeps what it is given."""
    memory = MemoryRegistry()
    with scripted_registry(memory) as server:
        yield RegistryClient(server.host, plain_http=True, reach=LOOPBACK), memory


def test_the_payload_is_a_simple_signing_document() -> None:
    """With the words that cosign compares."""
    assert json.loads(payload(IMAGE)) == {
        "critical": {
            "identity": {"docker-reference": "r.io/team/edu"},
            "image": {"docker-manifest-digest": DIGEST},
            "type": "cosign container image signature",
        },
        "optional": None,
    }


def test_a_signature_is_of_one_image_by_one_key() -> None:
    """Not of another digest, not by another key, not of a changed payload."""
    content = payload(IMAGE)
    signature = sign(content, KEY)
    assert is_signed(IMAGE, content, signature, PUBLIC)
    assert not is_signed(IMAGE.at("sha256:" + "b" * 64), content, signature, PUBLIC)
    assert not is_signed(IMAGE, content, signature, OTHER_KEY.public_key())
    assert not is_signed(IMAGE, content + b" ", signature, PUBLIC)


def test_openssl_agrees(tmp_path: Path) -> None:
    """A signature is what any other program makes of ECDSA, SHA-256 and DER."""
    require_program("openssl")
    content = payload(IMAGE)
    for name, data in (
        ("payload", content),
        ("signature", base64.b64decode(sign(content, KEY))),
        ("cosign.pub", public_pem(KEY)),
    ):
        (tmp_path / name).write_bytes(data)
    argv = ["openssl", "dgst", "-sha256", "-verify", "cosign.pub", "-signature", "signature", "payload"]
    verdict = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert verdict.stdout.strip() == "Verified OK"


@given(st.binary(), st.text())
def test_anything_else_is_no_signature(content: bytes, signature: str) -> None:
    """Whatever lies in the registry."""
    assert not is_signed(IMAGE, content, signature, PUBLIC)


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_signed_document_of_another_kind_is_no_signature(value: object) -> None:
    """The key may sign other things too."""
    content = json.dumps(value).encode()
    assert not is_signed(IMAGE, content, sign(content, KEY), PUBLIC)


def test_a_signature_lies_where_cosign_looks(registry: tuple[RegistryClient, MemoryRegistry]) -> None:
    """An image of one layer, the payload, annotated with the signature."""
    client, memory = registry
    push_signature(client, IMAGE, KEY)
    manifest = memory.manifest(TAG)
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    assert memory.blobs[layer["digest"]] == payload(IMAGE)
    signature = layer["annotations"]["dev.cosignproject.cosign/signature"]
    assert is_signed(IMAGE, payload(IMAGE), signature, PUBLIC)
    config = json.loads(memory.blobs[manifest["config"]["digest"]])
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert has_signature(client, IMAGE, PUBLIC)
    assert not has_signature(client, IMAGE, OTHER_KEY.public_key())


def test_an_image_is_signed_once_by_each_key(registry: tuple[RegistryClient, MemoryRegistry]) -> None:
    """Though each signature differs; what others signed stays."""
    client, memory = registry
    for key in (KEY, OTHER_KEY, KEY, OTHER_KEY):
        push_signature(client, IMAGE, key)
    assert len(memory.manifest(TAG)["layers"]) == 2
    assert has_signature(client, IMAGE, PUBLIC)
    assert has_signature(client, IMAGE, OTHER_KEY.public_key())


def test_an_unsigned_image_has_no_signature(registry: tuple[RegistryClient, MemoryRegistry]) -> None:
    """Nor is that an error."""
    assert not has_signature(registry[0], IMAGE, PUBLIC)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({"schemaVersion": 2}, id="without layers"),
        pytest.param({"schemaVersion": 2, "layers": ["x"]}, id="layers that are none"),
        pytest.param({"schemaVersion": 2, "layers": [{}]}, id="a layer without a digest"),
    ],
)
def test_another_image_under_the_tag_is_left_alone(
    manifest: dict[str, object], registry: tuple[RegistryClient, MemoryRegistry]
) -> None:
    """It is named, not overwritten."""
    client, memory = registry
    memory.manifests[TAG] = before = ("x", json.dumps(manifest).encode())
    with pytest.raises(RegistryRefused, match=f"{TAG} is not a list of signatures"):
        push_signature(client, IMAGE, KEY)
    assert memory.manifests[TAG] == before


@pytest.mark.parametrize("password", [b"", b"s3cret"])
def test_a_key_is_read_from_pem(password: bytes) -> None:
    """With or without a password."""
    key = parse_private_key(pem(KEY, password), password)
    assert key.private_numbers() == KEY.private_numbers()


@pytest.mark.parametrize(
    ("text", "password", "words"),
    [
        pytest.param(b"hunter2", None, "not a private key in PEM", id="no PEM"),
        pytest.param(pem(KEY, b"s3cret"), None, "password is missing or wrong", id="no password"),
        pytest.param(pem(KEY, b"s3cret"), b"hunter2", "password is missing or wrong", id="wrong password"),
        pytest.param(pem(KEY), b"hunter2", "password is missing or wrong", id="a password for none"),
        pytest.param(pem(ec.generate_private_key(ec.SECP384R1())), None, "not on the curve P-256", id="other curve"),
        pytest.param(pem(ed25519.Ed25519PrivateKey.generate()), None, "not on the curve P-256", id="other kind"),
        pytest.param(
            b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nhunter2\n", None, "openssl genpkey", id="cosign's own"
        ),
    ],
)
def test_a_wrong_key_says_what_to_do(text: bytes, password: bytes | None, words: str) -> None:
    """The error for an unusable key names the remedy and never quotes the key."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        parse_private_key(text, password)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_signatures_have_a_tag_of_their_own() -> None:
    """The tag of a signature is derived from the image's digest."""
    assert signature_tag(DIGEST) == TAG
