"""Signs modules in tests as the kernel's scripts/sign-file does, by issuer and serial number or by key identifier."""

import datetime
import hashlib
import struct
from dataclasses import dataclass
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from driver_builder.modules.module_signature import MARKER

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_SIGNED_DATA, _DATA = bytes.fromhex("2a864886f70d010702"), bytes.fromhex("2a864886f70d010701")
_HASH_OIDS = {"sha256": bytes.fromhex("608648016503040201"), "sha512": bytes.fromhex("608648016503040203")}
_HASHES = {"sha256": hashes.SHA256(), "sha512": hashes.SHA512()}


def der(tag: int, *parts: bytes) -> bytes:
    """One DER element."""
    value = b"".join(parts)
    if len(value) < 0x80:
        return bytes((tag, len(value))) + value
    size = (len(value).bit_length() + 7) // 8
    return bytes((tag, 0x80 + size)) + len(value).to_bytes(size, "big") + value


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A key and its certificate."""

    key: Key
    certificate: x509.Certificate

    @property
    def der(self) -> bytes:
        """The certificate in DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_id(self) -> bytes:
        """The subject key identifier in the certificate."""
        return self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest

    def sign(self, plain: bytes, *, hash_name: str = "sha256", by_key_id: bool = False) -> bytes:
        """The signed module."""
        message = self.pkcs7(plain, hash_name=hash_name, by_key_id=by_key_id)
        return plain + message + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(message)) + MARKER

    def pkcs7(
        self, plain: bytes, *, hash_name: str = "sha256", by_key_id: bool = False, attributes: bytes = b""
    ) -> bytes:
        """The detached message, without the certificate; ``attributes`` are put in unsigned."""
        issuer = der(0x30, self.certificate.issuer.public_bytes(), der(0x02, self._serial()))
        algorithm = der(0x30, der(0x06, _HASH_OIDS[hash_name]), der(0x05))
        signer = der(
            0x30,
            der(0x02, b"\3" if by_key_id else b"\1"),
            der(0x80, self.key_id) if by_key_id else issuer,
            algorithm,
            attributes,
            der(0x30, der(0x06, bytes.fromhex("2a864886f70d010101"))),
            der(0x04, self._signature(plain, hash_name)),
        )
        data = der(0x30, der(0x02, b"\3"), der(0x31, algorithm), der(0x30, der(0x06, _DATA)), der(0x31, signer))
        return der(0x30, der(0x06, _SIGNED_DATA), der(0xA0, data))

    def _serial(self) -> bytes:
        number = self.certificate.serial_number
        return number.to_bytes(number.bit_length() // 8 + 1, "big")

    def _signature(self, plain: bytes, hash_name: str) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(plain, padding.PKCS1v15(), _HASHES[hash_name])
        return self.key.sign(plain, ec.ECDSA(_HASHES[hash_name]))


@cache
def a_signer(name: str, *, is_rsa: bool = True) -> Signer:
    """A key with a self-signed certificate; the same one for the same name."""
    key: Key = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big") | 1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Signer(key=key, certificate=certificate)


def key_bytes(
    signer: Signer, encoding: serialization.Encoding = serialization.Encoding.PEM, *, password: bytes | None = None
) -> bytes:
    """The private key as a Secret holds it."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return signer.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, encryption)
