"""Modules are signed as the kernel's scripts/sign-file does, and with nothing but what may be used for it."""

import subprocess
import tarfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.archives.image_layers import Layer
from driver_builder.base.errors import ConfigurationError, InvalidModule
from driver_builder.modules.module_signature import (
    MARKER,
    is_broken,
    is_by,
    parse_certificate,
    parse_pkcs7,
    split_signature,
)
from driver_builder.modules.module_signer import ModuleSigner, parse_signer, sign_modules
from tests.support.driver_builder.image_tars import Entry, docker_20, read_files, special, tar_of
from tests.support.driver_builder.kernel_modules import HELPER, PROBE
from tests.support.driver_builder.module_signing import Signer, a_signer, key_bytes

OURS, OTHER, CURVE = a_signer("ours"), a_signer("other"), a_signer("curve", is_rsa=False)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER = "/lib/modules/6.1"


@cache
def a_module_signer(signer: Signer = OURS) -> ModuleSigner:
    """The signer of a key and its certificate."""
    return parse_signer(key_bytes(signer), signer.pem, now=NOW)


def an_image(tmp_path: Path, *layers: dict[str, Entry]) -> ImageArchive:
    """An image of these layers."""
    return read_image_archive(docker_20(tmp_path / "image.tar", [tar_of(layer) for layer in layers]), tmp_path / "old")


def signed(image: ImageArchive, tmp_path: Path) -> ImageArchive:
    """The same image, signed."""
    return sign_modules(image, a_module_signer(), folder=FOLDER, directory=tmp_path / "new", signed=lambda _path: None)


def test_a_signed_module_is_by_that_key_alone() -> None:
    """What verification demands of it."""
    plain, (signature,) = split_signature(a_module_signer().sign(HELPER))
    assert (plain, signature.hash_name) == (HELPER, "sha256")
    ours, other = parse_certificate(OURS.der), parse_certificate(OTHER.der)
    assert is_by(signature, ours)
    assert not is_broken(signature, ours)
    assert not is_by(signature, other)


def test_a_signature_takes_the_place_of_an_older_one() -> None:
    """A vendor's key would not be known to the nodes, and the kernel reads the last signature only."""
    assert a_module_signer().sign(OTHER.sign(HELPER)) == a_module_signer().sign(HELPER)


def test_openssl_makes_the_same_signature_and_accepts_ours(tmp_path: Path) -> None:
    """The signature's bytes are equal, and so is who signed over what; scripts/sign-file calls the same functions."""
    names = ("module", "key", "certificate", "ours", "theirs")
    module, key, certificate, ours, theirs = (str(tmp_path / name) for name in names)
    signed_module = a_module_signer().sign(HELPER)
    Path(module).write_bytes(HELPER)
    Path(key).write_bytes(key_bytes(OURS))
    Path(certificate).write_bytes(OURS.pem)
    Path(ours).write_bytes(signed_module[len(HELPER) : -len(MARKER) - 12])

    like_sign_file = ("-noattr", "-nocerts", "-nosmimecap", "-md", "sha256")
    openssl("-sign", *like_sign_file, "-signer", certificate, "-inkey", key, "-in", module, "-out", theirs)
    trusting = ("-certfile", certificate, "-CAfile", certificate, "-purpose", "any")
    openssl("-verify", *trusting, "-inform", "DER", "-in", ours, "-content", module, "-out", "/dev/null")
    assert parse_pkcs7(Path(theirs).read_bytes(), HELPER) == split_signature(signed_module)[1]


def openssl(*words: str) -> None:
    """Run openssl's cms."""
    subprocess.run(["openssl", "cms", "-binary", "-outform", "DER", *words], check=True, capture_output=True)


@pytest.mark.parametrize("encoding", [serialization.Encoding.PEM, serialization.Encoding.DER])
def test_keys_and_certificates_are_read_in_pem_and_der(encoding: serialization.Encoding) -> None:
    """As openssl writes them, and as KMM's documentation stores them."""
    certificate = OURS.pem if encoding is serialization.Encoding.PEM else OURS.der
    signer = parse_signer(key_bytes(OURS, encoding), certificate, now=NOW)
    assert signer.sign(HELPER) == a_module_signer().sign(HELPER)


@pytest.mark.parametrize(
    ("key", "certificate", "now", "message"),
    [
        pytest.param(key_bytes(OTHER), OURS.pem, NOW, "do not match", id="another key"),
        pytest.param(key_bytes(CURVE), CURVE.pem, NOW, "not an RSA key", id="elliptic curve"),
        pytest.param(key_bytes(OURS, password=b"x"), OURS.pem, NOW, "encrypted: store it without", id="encrypted"),
        pytest.param(b"-----BEGIN ", OURS.pem, NOW, "not a private key in PEM or DER", id="no key"),
        pytest.param(b"", OURS.pem, NOW, "not a private key in PEM or DER", id="empty"),
        pytest.param(key_bytes(OURS), b"x", NOW, "certificate cannot be read", id="no certificate"),
        pytest.param(
            key_bytes(OURS), OURS.pem, datetime(2200, 1, 1, tzinfo=UTC), "which does not include now", id="expired"
        ),
        pytest.param(key_bytes(OURS), OURS.pem, datetime(2000, 1, 1, tzinfo=UTC), "from 2020-01-01", id="too early"),
    ],
)
def test_what_cannot_sign_is_reported(key: bytes, certificate: bytes, now: datetime, message: str) -> None:
    """An unusable key or certificate is an error before anything is built."""
    with pytest.raises(ConfigurationError, match=message):
        parse_signer(key, certificate, now=now)


def test_a_key_is_never_quoted() -> None:
    """Neither by a signer nor by what is wrong with a key."""
    secret = key_bytes(OURS).decode().splitlines()[1]
    assert isinstance(a_module_signer().key, rsa.RSAPrivateKey)
    assert "RSAPrivateKey" not in repr(a_module_signer())
    broken = key_bytes(OURS).replace(b"=", b"!")[:-40]
    with pytest.raises(ConfigurationError) as caught:
        parse_signer(broken, OURS.pem, now=NOW)
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


def test_every_module_of_the_kernel_is_signed_and_nothing_else_changes(tmp_path: Path) -> None:
    """Order, times, owners and links of the layer stay; layers without modules are the same files."""
    link, empty = special(b"1", "lib/modules/6.1/a.ko"), special(b"0")
    link.mtime, empty.mtime, empty.mode, empty.uid = 7, 5, 0o640, 3
    empty.pax_headers = {"SCHILY.xattr.user.x": "y"}
    layers: list[dict[str, Entry]] = [
        {"bin/busybox": b"x"},
        {
            "lib/modules/6.1/a.ko": HELPER,
            "lib/modules/6.1/b.ko": link,
            "driver/x.ko": PROBE,
            "lib/modules/6.1/d": empty,
        },
    ]
    before = an_image(tmp_path, *layers)
    after = signed(before, tmp_path)
    assert after.layers[0] == before.layers[0]
    assert after.config["rootfs"]["diff_ids"] == [layer.diff_id for layer in after.layers]
    old, new = read_files(before, "/"), read_files(after, "/")
    assert members(after.layers[1]) == members(before.layers[1])
    changed = {path for path, content in new.items() if content != old[path]}
    assert changed == {"/lib/modules/6.1/a.ko", "/lib/modules/6.1/b.ko"}
    assert split_signature(new["/lib/modules/6.1/a.ko"])[0] == HELPER
    assert signed(before, tmp_path).digest == after.digest


def members(layer: Layer) -> list[tuple[object, ...]]:
    """All about the members of a layer but their sizes and contents."""
    with tarfile.open(layer.path) as tar:
        return [(m.name, m.type, m.linkname, m.mtime, m.mode, m.uid, m.gid, m.pax_headers) for m in tar]


def test_a_module_that_is_compressed_already_is_reported(tmp_path: Path) -> None:
    """Its signature would be over another file than the one that the kernel sees."""
    with pytest.raises(ConfigurationError, match=r"a\.ko\.xz is compressed.*install it as \.ko"):
        signed(an_image(tmp_path, {"lib/modules/6.1/a.ko.xz": b"x"}), tmp_path)


def test_a_damaged_signature_is_reported_with_the_module(tmp_path: Path) -> None:
    """It may be a file that was cut off."""
    with pytest.raises(InvalidModule, match=r"/lib/modules/6\.1/a\.ko: its signature cannot be read"):
        signed(an_image(tmp_path, {"lib/modules/6.1/a.ko": b"~Module signature appended~\n"}), tmp_path)
