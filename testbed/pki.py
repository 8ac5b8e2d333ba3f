"""The testbed's own certificate authority, so that TLS is verified everywhere and never switched off."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=30)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its key, as PEM text."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Issues certificates; lives as ca.crt and ca.key in a folder, so that a later command can issue more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ca.crt"
        if not self.file.exists():
            self._create()
        self._certificate = x509.load_pem_x509_certificate(self.file.read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{folder}/ca.key is not an elliptic curve key")
        self._key = key

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("proving-ground-ca")
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_private(self.folder / "ca.key", _key_pem(key))
        self.file.write_bytes(certificate.public_bytes(_PEM))

    def issue(self, common_name: str, *, organization: str = "", hosts: Iterable[str] = ()) -> KeyPair:
        """Issue a certificate for a client (its user name and group) and, with `hosts`, for a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_general_name(host) for host in hosts]
        builder = (
            _builder(_name(common_name, organization), self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate=certificate.public_bytes(_PEM), key=_key_pem(key))

    def issue_files(self, name: str, common_name: str, *, organization: str = "", hosts: Iterable[str] = ()) -> Path:
        """Issue a certificate into NAME.crt and NAME.key of the folder; return the path without its ending."""
        pair = self.issue(common_name, organization=organization, hosts=hosts)
        (self.folder / f"{name}.crt").write_bytes(pair.certificate)
        write_private(self.folder / f"{name}.key", pair.key)
        return self.folder / name


def create_service_account_keys(folder: Path) -> None:
    """Write sa.key and sa.pub, with which service account tokens are signed and checked."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(
        folder / "sa.key",
        key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()),
    )
    (folder / "sa.pub").write_bytes(public)


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner may read, from its first moment."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A guest's clock may start a little behind the host's.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=not sign_certificates,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
