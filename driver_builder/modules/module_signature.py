"""Who signed a kernel module: the signature at its end, and whether it is by a given certificate.

Place in the flow: ``kernel_module`` cuts the signature off, ``verify`` compares it with the certificate of the request.

A signed module is the plain file, a PKCS#7 message (its only content: who signed, over what hash, the signature),
twelve bytes that say how long it is, and a marker. Sources of the formats: the kernel's
``include/linux/module_signature.h``, ``scripts/sign-file.c`` and ``crypto/asymmetric_keys/pkcs7_parser.c``; RFC 5652
(CMS), RFC 5280 (X.509), RFC 8017 (RSA).

The kernel looks a key up by issuer and serial number, or by subject key identifier; so does this. The signature itself
is checked as well: nothing secret is involved, it is one power and a comparison. Keys are RSA, as nearly all module
keys are. A signature of a kind that no kernel accepts, or that cannot be checked here, as one by another
kind of key, counts as broken.
"""

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from driver_builder.base.errors import ConfigurationError, InvalidModule
from driver_builder.modules import der
from driver_builder.modules.der import Element, InvalidDer

MARKER = b"~Module signature appended~\n"
_TRAILER = struct.Struct(">BBBBB3xI")
"""algo, hash, id_type, signer_len, key_id_len, padding, sig_len: all but the type and the last are 0 with PKCS#7."""
_PKCS7 = 2
_KEY_ID, _SIGNED_ATTRIBUTES = 0x80, 0xA0
_EXTENSIONS, _VERSION = 0xA3, 0xA0

_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_RSA = bytes.fromhex("2a864886f70d010101")
_SUBJECT_KEY_ID = bytes.fromhex("551d0e")
_COMMON_NAME = bytes.fromhex("550403")
_HASHES = {
    bytes.fromhex("2b0e03021a"): "sha1",
    bytes.fromhex("608648016503040201"): "sha256",
    bytes.fromhex("608648016503040202"): "sha384",
    bytes.fromhex("608648016503040203"): "sha512",
    bytes.fromhex("608648016503040204"): "sha224",
    bytes.fromhex("608648016503040208"): "sha3_256",
    bytes.fromhex("608648016503040209"): "sha3_384",
    bytes.fromhex("60864801650304020a"): "sha3_512",
}
_RSA_BITS_LIMIT = 8192
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSignature:
    """One signer's signature over a module.

    The signer is named by ``issuer`` (DER) and ``serial``, or by ``key_id``; what it is not named by is empty, or 0.
    ``hash_name`` is hashlib's word; ``digest`` is of the module's plain file, None where the hash is unknown here.
    ``has_attributes``: ``value`` is not over the file itself but over signed attributes.
    """

    issuer: bytes = field(repr=False)
    serial: int
    key_id: bytes
    hash_name: str
    value: bytes = field(repr=False)
    digest: bytes | None = field(repr=False)
    has_attributes: bool = False

    @property
    def signer(self) -> str:
        """For people: the key identifier, or the issuer's common name and the serial number."""
        if self.key_id:
            return f"key {self.key_id.hex()}"
        return f"serial {self.serial:x} of {common_name(self.issuer)!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The key of an X.509 certificate: ``rsa`` is modulus and exponent, None for keys of another kind."""

    issuer: bytes = field(repr=False)
    serial: int
    key_id: bytes
    rsa: tuple[int, int] | None = field(repr=False)

    def __str__(self) -> str:
        key = f", key {self.key_id.hex()}" if self.key_id else ""
        return f"serial {self.serial:x} of {common_name(self.issuer)!r}{key}"


def split_signature(content: bytes) -> tuple[bytes, tuple[ModuleSignature, ...]]:
    """The plain file of a module, and the signatures over it; none for a module that is not signed.

    Raises:
        InvalidModule: as :func:`read_signatures`.
    """
    size, signatures = read_signatures(content)
    return content[:size], signatures


def read_signatures(content: bytes) -> tuple[int, tuple[ModuleSignature, ...]]:
    """How many bytes the plain file of a module has, and the signatures over it; without a copy of it.

    Raises:
        InvalidModule: when the end of the file is no signature that the kernel reads; it refuses such a module always.
    """
    if not content.endswith(MARKER):
        return len(content), ()
    end = len(content) - len(MARKER) - _TRAILER.size
    if end < 0:
        raise _damaged("it is cut off")
    *zeros, length = _TRAILER.unpack_from(content, end)
    if zeros != [0, 0, _PKCS7, 0, 0] or not 0 < length <= end:
        raise _damaged("the twelve bytes before the marker are not those of a PKCS#7 signature")
    try:
        return end - length, parse_pkcs7(content[end - length : end], memoryview(content)[: end - length])
    except InvalidDer as error:
        raise _damaged(f"the PKCS#7 message: {error}") from error


def parse_pkcs7(message: bytes, plain: bytes | memoryview) -> tuple[ModuleSignature, ...]:
    """The signers of a detached PKCS#7 message over ``plain``.

    Raises:
        InvalidDer: when it is not one.
    """
    kind, explicit = der.members(der.only(message, der.SEQUENCE), der.OBJECT_ID, 0xA0)[:2]
    if kind.value != _SIGNED_DATA:
        raise InvalidDer("it is not signed data")
    data = der.members(der.only(explicit.value, der.SEQUENCE), der.INTEGER, der.SET, der.SEQUENCE)
    if data[-1].tag != der.SET:
        raise InvalidDer("it has no signers")
    signers = tuple(_signature(signer, plain) for signer in der.elements(data[-1].value))
    if not signers:
        raise InvalidDer("it has no signers")
    return signers


def signed_file(plain: bytes, message: bytes) -> bytes:
    """A module with the signature in a PKCS#7 message appended, as the kernel reads it."""
    return b"".join((plain, message, _TRAILER.pack(0, 0, _PKCS7, 0, 0, len(message)), MARKER))


def der_of(certificate: bytes) -> bytes:
    """The DER of a certificate that may be PEM (the first one in it): the same whatever it was wrapped in.

    Raises:
        ValueError: when the PEM holds no base64.
    """
    pem = _PEM.search(certificate)
    return base64.b64decode(b"".join(pem[1].split()), validate=True) if pem else certificate


def parse_certificate(content: bytes) -> Certificate:
    """Read an X.509 certificate, DER or PEM (the first one in it).

    Raises:
        ConfigurationError: when it is not one.
    """
    try:
        return _certificate(der_of(content))
    except (InvalidDer, binascii.Error, IndexError) as error:
        raise ConfigurationError(
            f"the signing certificate cannot be read: {error}; give an X.509 certificate in DER or PEM"
        ) from error


def is_by(signature: ModuleSignature, certificate: Certificate) -> bool:
    """Whether the signature names that certificate as its signer, as the kernel would look it up."""
    if signature.key_id:
        return signature.key_id == certificate.key_id
    return (signature.issuer, signature.serial) == (certificate.issuer, certificate.serial)


def is_broken(signature: ModuleSignature, certificate: Certificate) -> bool:
    """Whether the signature is not over this file by that key.

    One with signed attributes always is: the kernel refuses them in modules (``crypto/asymmetric_keys/pkcs7_verify.c``,
    VERIFYING_MODULE_SIGNATURE). So is one by a key that is not RSA, or over a hash that is unknown here: nothing of it
    is proven.
    """
    if signature.has_attributes or signature.digest is None or certificate.rsa is None:
        return True
    modulus, exponent = certificate.rsa
    size = (modulus.bit_length() + 7) // 8
    if len(signature.value) != size:
        return True
    opened = pow(int.from_bytes(signature.value, "big"), exponent, modulus).to_bytes(size, "big")
    return opened != _padded(signature.hash_name, signature.digest, size)


def common_name(name: bytes) -> str:
    """The common name in an X.501 name; its digest where there is none."""
    try:
        for relative in der.elements(der.only(name, der.SEQUENCE).value):
            for attribute in der.elements(relative.value):
                kind, value = der.members(attribute, der.OBJECT_ID)[:2]
                if kind.value == _COMMON_NAME:
                    return value.value.decode(errors="replace")
    except ValueError:
        pass
    return f"issuer {hashlib.sha256(name).hexdigest()[:16]}"


def _damaged(problem: str) -> InvalidModule:
    return InvalidModule(
        f"its signature cannot be read: {problem}; sign it last, and do not strip or change it afterwards"
    )


def _signature(signer: Element, plain: bytes | memoryview) -> ModuleSignature:
    members = der.members(signer, der.INTEGER)
    if len(members) < len(("version", "signer", "hash", "algorithm", "signature")):
        raise InvalidDer("a signer is incomplete")
    issuer, serial, key_id = _signer_identifier(members[1])
    hash_name = _hash_name(members[2])
    has_attributes = members[3].tag == _SIGNED_ATTRIBUTES
    value = der.first(members, der.OCTET_STRING)
    if value is None:
        raise InvalidDer("a signer has no signature")
    return ModuleSignature(
        issuer=issuer,
        serial=serial,
        key_id=key_id,
        hash_name=hash_name,
        value=value.value,
        digest=hashlib.new(hash_name, plain).digest() if hash_name else None,
        has_attributes=has_attributes,
    )


def _signer_identifier(element: Element) -> tuple[bytes, int, bytes]:
    if element.tag == _KEY_ID:
        return b"", 0, element.value
    issuer, serial = der.members(element, der.SEQUENCE, der.INTEGER)[:2]
    return issuer.whole, der.integer(serial), b""


def _hash_name(algorithm: Element) -> str:
    return _HASHES.get(der.members(algorithm, der.OBJECT_ID)[0].value, "")


def _certificate(content: bytes) -> Certificate:
    body = der.members(der.only(content, der.SEQUENCE), der.SEQUENCE)[0]
    members = [member for member in der.elements(body.value) if member.tag != _VERSION]
    if len(members) < len(("serial", "algorithm", "issuer", "validity", "subject", "key")):
        raise InvalidDer("it is not a certificate")
    serial, _, issuer, _, _, key = members[:6]
    return Certificate(
        issuer=issuer.whole, serial=der.integer(serial), key_id=_subject_key_id(members), rsa=_rsa_key(key)
    )


def _subject_key_id(members: Sequence[Element]) -> bytes:
    wrapper = der.first(members, _EXTENSIONS)
    extensions = der.elements(der.only(wrapper.value, der.SEQUENCE).value) if wrapper else ()
    for extension in extensions:
        parts = der.members(extension, der.OBJECT_ID)
        if parts[0].value == _SUBJECT_KEY_ID:
            return der.only(parts[-1].value, der.OCTET_STRING).value
    return b""


def _rsa_key(key: Element) -> tuple[int, int] | None:
    algorithm, bits = der.members(key, der.SEQUENCE, der.BIT_STRING)[:2]
    if der.members(algorithm, der.OBJECT_ID)[0].value != _RSA:
        return None
    modulus, exponent = der.members(der.only(bits.value[1:], der.SEQUENCE), der.INTEGER, der.INTEGER)[:2]
    numbers = der.integer(modulus), der.integer(exponent)
    if min(numbers) < 1 or max(numbers) >> _RSA_BITS_LIMIT:
        raise InvalidDer("its RSA key has no usable numbers")
    return numbers


def _padded(hash_name: str, digest: bytes, size: int) -> bytes:
    """What an RSA signature must open to: RFC 8017, 9.2 (EMSA-PKCS1-v1_5)."""
    identifier = next(oid for oid, name in _HASHES.items() if name == hash_name)
    algorithm = _encoded(der.SEQUENCE, _encoded(der.OBJECT_ID, identifier) + b"\x05\x00")
    info = _encoded(der.SEQUENCE, algorithm + _encoded(der.OCTET_STRING, digest))
    return b"\0\1" + b"\xff" * (size - len(info) - 3) + b"\0" + info


def _encoded(tag: int, value: bytes) -> bytes:
    """An element of less than 128 bytes."""
    return bytes((tag, len(value))) + value
