"""Who signed a module: signatures as scripts/sign-file makes them, and what is none."""

import contextlib
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import ConfigurationError, InvalidModule
from driver_builder.modules.module_signature import (
    MARKER,
    Certificate,
    ModuleSignature,
    common_name,
    is_broken,
    is_by,
    parse_certificate,
    split_signature,
)
from tests.support.driver_builder.kernel_modules import HELPER
from tests.support.driver_builder.module_signing import Signer, a_signer, der

OURS, OTHER, CURVE = a_signer("ours"), a_signer("other"), a_signer("curve", is_rsa=False)


def the_signature(content: bytes) -> ModuleSignature:
    """The one signature at the end of a module."""
    (signature,) = split_signature(content)[1]
    return signature


def test_a_module_without_a_signature_is_all_content() -> None:
    """Without a signature nothing is cut off the module."""
    assert split_signature(HELPER) == (HELPER, ())


@pytest.mark.parametrize("by_key_id", [pytest.param(False, id="by serial"), pytest.param(True, id="by key identifier")])
@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
@pytest.mark.parametrize("signer", [pytest.param(OURS, id="RSA"), pytest.param(CURVE, id="elliptic curve")])
def test_a_signature_names_its_signer_and_hash(signer: Signer, hash_name: str, by_key_id: bool) -> None:
    """Both ways to name a key, as sign-file has them without and with -k."""
    plain, (signature,) = split_signature(signer.sign(HELPER, hash_name=hash_name, by_key_id=by_key_id))
    assert plain == HELPER
    assert signature.hash_name == hash_name
    assert signature.key_id == (signer.key_id if by_key_id else b"")
    assert is_by(signature, parse_certificate(signer.der))
    assert is_broken(signature, parse_certificate(signer.der)) is (signer is CURVE)
    assert not is_by(signature, parse_certificate(OTHER.der))


def test_what_openssl_signs_is_read(tmp_path: Path) -> None:
    """scripts/sign-file is a thin layer over the same functions of OpenSSL."""
    module, certificate, key = (tmp_path / name for name in ("module.ko", "certificate.pem", "key.pem"))
    module.write_bytes(HELPER)
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/O=Example/CN=Module key"]
    subprocess.run([*request, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    sign = [
        "openssl",
        "cms",
        "-sign",
        "-binary",
        "-noattr",
        "-nocerts",
        "-nosmimecap",
        "-outform",
        "DER",
        "-md",
        "sha384",
    ]
    for options in ([], ["-keyid"]):
        message = subprocess.run(
            [*sign, *options, "-signer", str(certificate), "-inkey", str(key), "-in", str(module)],
            check=True,
            capture_output=True,
        ).stdout
        signature = the_signature(HELPER + message + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(message)) + MARKER)
        wanted = parse_certificate(certificate.read_bytes())
        assert signature.hash_name == "sha384"
        assert is_by(signature, wanted)
        assert not is_broken(signature, wanted)
        assert "key " in signature.signer or "'Module key'" in signature.signer


def test_the_signer_is_named_for_people() -> None:
    """By what mokutil and /proc/keys show too."""
    assert the_signature(OURS.sign(HELPER)).signer == f"serial {OURS.certificate.serial_number:x} of 'ours'"
    assert the_signature(OURS.sign(HELPER, by_key_id=True)).signer == f"key {OURS.key_id.hex()}"
    assert str(parse_certificate(OURS.der)).endswith(f"of 'ours', key {OURS.key_id.hex()}")


def test_a_file_that_was_changed_after_it_was_signed_is_rejected() -> None:
    """The signer is right, the signature is not over these bytes."""
    signed = OURS.sign(HELPER)
    signature = the_signature(b"\x7fELF" + b"changed" + signed[11:])
    certificate = parse_certificate(OURS.der)
    assert is_by(signature, certificate)
    assert is_broken(signature, certificate)


def test_a_key_that_only_has_the_name_is_rejected() -> None:
    """Somebody made the certificate anew under the same name and number."""
    signature, certificate = the_signature(OURS.sign(HELPER)), parse_certificate(OURS.der)
    impostor = Certificate(
        issuer=certificate.issuer, serial=certificate.serial, key_id=b"", rsa=parse_certificate(OTHER.der).rsa
    )
    assert is_by(signature, impostor)
    assert is_broken(signature, impostor)


def test_a_signature_of_another_length_is_broken() -> None:
    """An RSA signature is as long as its modulus."""
    certificate = Certificate(issuer=b"", serial=1, key_id=b"", rsa=(2**1023 + 1, 3))
    assert is_broken(the_signature(OURS.sign(HELPER)), certificate)


def test_a_signature_over_attributes_is_broken() -> None:
    """The kernel refuses signed attributes in a module."""
    signature = the_signature(ended(OURS.pkcs7(HELPER, attributes=der(0xA0, b""))))
    assert is_by(signature, parse_certificate(OURS.der))
    assert is_broken(signature, parse_certificate(OURS.der))


@pytest.mark.parametrize("signer", [pytest.param(OURS, id="RSA"), pytest.param(CURVE, id="elliptic curve")])
def test_a_signature_over_an_unknown_hash_is_broken(signer: Signer) -> None:
    """Nothing of it is proven, whatever the key."""
    message = signer.pkcs7(HELPER).replace(bytes.fromhex("608648016503040201"), bytes.fromhex("608648016503040220"))
    signature = the_signature(ended(message))
    assert (signature.hash_name, signature.digest) == ("", None)
    assert is_by(signature, parse_certificate(signer.der))
    assert is_broken(signature, parse_certificate(signer.der))


def ended(message: bytes, *, trailer: tuple[int, ...] = (0, 0, 2, 0, 0), length: int | None = None) -> bytes:
    """A module with that message in place of a signature."""
    size = len(message) if length is None else length
    return HELPER + message + struct.pack(">BBBBB3xI", *trailer, size) + MARKER


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(MARKER, "cut off", id="only the marker"),
        pytest.param(ended(b"", length=0), "twelve bytes", id="no message"),
        pytest.param(ended(b"x", length=2**31), "twelve bytes", id="longer than the file"),
        pytest.param(ended(b"x", trailer=(0, 0, 1, 0, 0)), "twelve bytes", id="the format before 2016"),
        pytest.param(ended(b"PKCS#7"), "the PKCS#7 message", id="no DER"),
        pytest.param(ended(der(0x30)), "expected members", id="an empty message"),
        pytest.param(ended(der(0x30, der(6, b"x"), der(0xA0))), "not signed data", id="another content"),
        pytest.param(
            ended(OURS.pkcs7(HELPER).replace(bytes.fromhex("020103310f"), bytes.fromhex("020103300f"))),
            "expected members",
            id="sets that are sequences",
        ),
    ],
)
def test_an_end_that_is_no_signature_is_refused(content: bytes, message: str) -> None:
    """The kernel refuses such a module also where it asks for no signature."""
    with pytest.raises(InvalidModule, match=message):
        split_signature(content)


def test_a_certificate_is_read_from_der_and_pem() -> None:
    """Both are common; a PEM file may say more around it."""
    assert parse_certificate(OURS.der) == parse_certificate(b"Subject: ours\n" + OURS.pem)
    assert parse_certificate(CURVE.der).rsa is None
    assert parse_certificate(CURVE.der).key_id == CURVE.key_id


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----", id="no base64"),
        pytest.param(OURS.der[:100], id="cut off"),
        pytest.param(der(0x30, der(0x30)), id="nothing in it"),
        pytest.param(der(0x30, der(0x30, *[der(0x02, b"\1")] * 6)), id="numbers only"),
    ],
)
def test_what_is_no_certificate_is_refused(content: bytes) -> None:
    """The remedy is in the message."""
    with pytest.raises(ConfigurationError, match="give an X"):
        parse_certificate(content)


def test_a_name_without_a_common_name_has_a_digest() -> None:
    """Something must stand in the message."""
    assert common_name(b"").startswith("issuer e3b0c44298fc1c14")
    assert common_name(der(0x30)).startswith("issuer ")


SIGNED = OURS.sign(HELPER)


@given(st.integers(len(HELPER), len(SIGNED) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_signature_raises_nothing_else(position: int, value: int, is_cut: bool) -> None:
    """Wherever in it the damage is, and at whichever byte it ends."""
    damaged = SIGNED[:position] + (MARKER if is_cut else bytes((value,)) + SIGNED[position + 1 :])
    with contextlib.suppress(InvalidModule):
        for signature in split_signature(damaged)[1]:
            assert not (is_by(signature, parse_certificate(OTHER.der)))
            is_broken(signature, parse_certificate(OURS.der))


@given(st.integers(0, len(OURS.der) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_certificate_raises_nothing_else(position: int, value: int, is_cut: bool) -> None:
    """A certificate comes out of a Secret that a person filled."""
    damaged = OURS.der[:position] + (b"" if is_cut else bytes((value,)) + OURS.der[position + 1 :])
    with contextlib.suppress(ConfigurationError):
        is_broken(the_signature(SIGNED), parse_certificate(damaged))
