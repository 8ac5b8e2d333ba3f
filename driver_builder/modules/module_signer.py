"""Signs the modules of a built image, as the kernel's ``scripts/sign-file`` does, in this process only.

Place in the flow: after a builder, before ``verify``. The private key is never in an engine, a Job, a layer or a log:
no build can leak it.

A signature is a PKCS#7 message that is detached, binary, without attributes and without certificates; it names its
signer by issuer and serial number. Source: ``scripts/sign-file.c`` and ``crypto/asymmetric_keys/pkcs7_parser.c``. The
hash is SHA-256 always: every kernel that checks signatures has it built in, SHA-512 may be a module of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.archives.image_layers import changed_layer
from driver_builder.base.errors import ConfigurationError, InvalidModule
from driver_builder.modules.module_files import module_name
from driver_builder.modules.module_signature import der_of, signed_file, split_signature

_PEM = b"-----BEGIN "
_LIKE_SIGN_FILE = [
    pkcs7.PKCS7Options.DetachedSignature,
    pkcs7.PKCS7Options.Binary,
    pkcs7.PKCS7Options.NoAttributes,
    pkcs7.PKCS7Options.NoCerts,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSigner:
    """A private key and its certificate."""

    key: rsa.RSAPrivateKey = field(repr=False)
    certificate: x509.Certificate

    def sign(self, content: bytes) -> bytes:
        """The module with this signature, in place of any that it has.

        Raises:
            InvalidModule: when the signature that it has is damaged.
        """
        plain, _ = split_signature(content)
        builder = pkcs7.PKCS7SignatureBuilder(data=plain).add_signer(self.certificate, self.key, hashes.SHA256())
        return signed_file(plain, builder.sign(Encoding.DER, _LIKE_SIGN_FILE))


def parse_signer(key: bytes, certificate: bytes, *, now: datetime) -> ModuleSigner:
    """Read a key and its certificate, each in PEM or DER.

    Raises:
        ConfigurationError: when one cannot be read or may not be used, or they do not belong together; never quotes
            the key.
    """
    private, public = _private_key(key), _certificate(certificate)
    if private.public_key() != public.public_key():
        raise ConfigurationError(
            "the signing key and the signing certificate do not match: use the certificate of this key"
        )
    _check_time(public, now)
    return ModuleSigner(key=private, certificate=public)


def sign_modules(
    image: ImageArchive, signer: ModuleSigner, *, folder: str, directory: Path, signed: Callable[[str], None]
) -> ImageArchive:
    """The same image with every module below ``folder`` signed; changed layers go to ``directory``.

    ``signed`` is called with the path of each module.

    Raises:
        ConfigurationError: when a module is compressed.
        InvalidModule: when a module has a signature that is damaged.
    """

    def is_module(path: str) -> bool:
        return path.startswith(f"{folder}/") and bool(module_name(path))

    def sign(path: str, content: bytes) -> bytes:
        if not path.endswith(".ko"):
            raise ConfigurationError(
                f"module {path} is compressed, but only an uncompressed module can be signed:"
                " install it as .ko in the template"
            )
        try:
            made = signer.sign(content)
        except InvalidModule as error:
            raise InvalidModule(f"module file {path}: {error}") from error
        signed(path)
        return made

    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"signed-{number}.tar.gz" for number, _ in enumerate(image.layers)]
    layers = zip(image.layers, files, strict=True)
    return image.with_layers([changed_layer(layer, file, chosen=is_module, change=sign) for layer, file in layers])


def _private_key(content: bytes) -> rsa.RSAPrivateKey:
    load = serialization.load_pem_private_key if _PEM in content else serialization.load_der_private_key
    try:
        key = load(content, password=None)
    except TypeError:
        # Without the cause, here and below: it might quote the key.
        raise ConfigurationError(
            "the signing key is encrypted: store it without a password, with: openssl pkey -in KEY -out PLAIN"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("the signing key is not a private key in PEM or DER") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ConfigurationError(
            "the signing key is not an RSA key, the only kind that shim and all kernels support; create one with:"
            " openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048"
        )
    return key


def _certificate(content: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der_of(content))
    except ValueError as error:
        raise ConfigurationError(f"the signing certificate cannot be read: {error}") from error


def _check_time(certificate: x509.Certificate, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begins <= now <= ends:
        raise ConfigurationError(
            f"the signing certificate is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC, which does"
            " not include now: create a new one, enrol it on the nodes, and put it into the Secret"
        )
