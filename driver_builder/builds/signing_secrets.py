"""Keys and certificates from the Secrets that ``signing`` names.

Place in the flow: ``observe`` reads certificates, which are part of the build key; ``pipeline`` reads keys during a
build, and keeps them in memory only.

A Secret holds a key as ``key`` (as Kernel Module Management has it) or ``tls.key``, a certificate as ``cert`` or
``tls.crt``; so one of the type ``kubernetes.io/tls`` can be both.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from driver_builder.base.errors import BuildFailed, ConfigurationError
from driver_builder.base.reasons import Reason
from driver_builder.model.build import BuildRequest
from driver_builder.modules.module_signature import Certificate as X509Certificate
from driver_builder.modules.module_signature import der_of, parse_certificate
from driver_builder.registry.named_objects import ReferenceNotFound, read_entry
from driver_builder.snapshot.snapshot import Certificate, CertificateMissing, SigningCertificate
from kube_api.client import Reader

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from driver_builder.modules.module_signer import ModuleSigner

KEY_ENTRIES = ("key", "tls.key")
CERTIFICATE_ENTRIES = ("cert", "tls.crt")

_MODULE_KEY, _CERTIFICATE, _IMAGE_KEY = "keySecretRef", "certificateSecretRef", "imageKeySecretRef"
_SHORTEST_LINE = 16
"""Shorter lines of a key are not secret, and may occur in any text."""


class SigningSecrets:
    """Reads signing keys and certificates; ``clock`` decides whether certificates are still valid."""

    def __init__(self, client: Reader, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._clock = clock

    def certificate(self, namespace: str, name: str) -> Certificate:
        """Read the certificate of modules; a problem with its Secret is a result as well."""
        try:
            content = self._entry(namespace, name, _CERTIFICATE, CERTIFICATE_ENTRIES)
            _check_kind(parse_certificate(content))
            return SigningCertificate(der=der_of(content))
        except ReferenceNotFound as error:
            return CertificateMissing(message=str(error))
        except ConfigurationError as error:
            return CertificateMissing(message=f"{_where(namespace, name, _CERTIFICATE)}: {error}", is_invalid=True)

    def module_signer(self, namespace: str, request: BuildRequest) -> "ModuleSigner | None":
        """The key of modules, with the certificate of the request; None if modules are not signed.

        Raises:
            BuildFailed: SIGNING_FAILED, the key is missing or cannot be used.
        """
        name = request.signing.key_secret if request.signing else None
        if name is None or request.signing_certificate is None:
            return None
        # Cryptography needs 7 MiB, and only builds that sign have it.
        from driver_builder.modules.module_signer import parse_signer  # noqa: PLC0415 - see above

        try:
            key = self._entry(namespace, name, _MODULE_KEY, KEY_ENTRIES)
            return parse_signer(key, request.signing_certificate, now=self._clock())
        except ConfigurationError as error:
            raise _failed(namespace, name, _MODULE_KEY, error) from error

    def image_key(self, namespace: str, request: BuildRequest) -> "ec.EllipticCurvePrivateKey | None":
        """The key of images, None if they are not signed.

        Raises:
            BuildFailed: SIGNING_FAILED, the key is missing or cannot be used.
        """
        name = request.signing.image_key_secret if request.signing else None
        if name is None:
            return None
        from driver_builder.registry import image_signature  # noqa: PLC0415 - as in module_signer

        try:
            return image_signature.parse_private_key(self._entry(namespace, name, _IMAGE_KEY, KEY_ENTRIES))
        except ConfigurationError as error:
            raise _failed(namespace, name, _IMAGE_KEY, error) from error

    def texts(self, namespace: str, request: BuildRequest) -> tuple[str, ...]:
        """The parts of the keys to redact from a log; nothing for a missing Secret."""
        signing = request.signing
        names = (signing.key_secret, signing.image_key_secret) if signing else ()
        return tuple(line for name in names if name for line in self._lines(namespace, name))

    def _lines(self, namespace: str, name: str) -> list[str]:
        try:
            content = self._entry(namespace, name, _MODULE_KEY, KEY_ENTRIES)
        except ConfigurationError:
            return []
        is_text = content.isascii()
        lines = content.decode().splitlines() if is_text else [base64.b64encode(content).decode()]
        return [line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----")]

    def _entry(self, namespace: str, name: str, field: str, entries: tuple[str, ...]) -> bytes:
        return read_entry(self._client, namespace, name, entries, field=f"signing.{field}")


def _check_kind(certificate: X509Certificate) -> None:
    """Refuse a certificate that cannot sign or be verified here."""
    if certificate.rsa is None:
        raise ConfigurationError(
            f"the signing certificate ({certificate}) is of a key that is not RSA; make an RSA key and its certificate,"
            " enrol that on the nodes, and put it into the Secret"
        )


def _where(namespace: str, name: str, field: str) -> str:
    return f"signing.{field}: Secret {namespace}/{name}"


def _failed(namespace: str, name: str, field: str, error: ConfigurationError) -> BuildFailed:
    message = str(error) if isinstance(error, ReferenceNotFound) else f"{_where(namespace, name, field)}: {error}"
    return BuildFailed(Reason.SIGNING_FAILED, message)
