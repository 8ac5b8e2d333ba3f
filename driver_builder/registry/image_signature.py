"""A key pair's signature of an image, where ``cosign verify --key`` looks for it.

Place in the flow: after ``push`` and before ``tag``: a tag never names an image that has no signature yet.

Source of the formats: cosign's ``specs/SIGNATURE_SPEC.md``: a payload in the form of Red Hat's simple signing is one
layer of an image that is tagged ``sha256-<digest>.sig``; the layer's annotation holds the signature of the payload's
bytes, in base64. Keys are of the curve P-256, signatures ECDSA over SHA-256 in DER. There is no entry in a transparency
log: images of a cluster are private, and a key pair needs none. Errors are those of ``ImageStore``.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import CONFIG_TYPE, MANIFEST_TYPE, canonical_json, descriptor
from driver_builder.base.errors import ConfigurationError, RegistryRefused
from driver_builder.model.images import ImageRef
from driver_builder.registry.image_store import ImageStore

PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"
KIND = "cosign container image signature"
MAX_SIGNATURES = 32
MAX_PAYLOAD = 64 << 10
"""Signatures of an image that are read, and the bytes of each."""
NO_TIME = "0001-01-01T00:00:00Z"
_ECDSA = ec.ECDSA(hashes.SHA256())

Json = dict[str, Any]


def parse_private_key(pem: bytes, password: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """A P-256 key out of PEM (PKCS#8 or SEC 1).

    Raises:
        ConfigurationError: it is not one, or is encrypted in cosign's own way; never quotes the key.
    """
    if b"SIGSTORE PRIVATE KEY" in pem or b"COSIGN PRIVATE KEY" in pem:
        raise ConfigurationError(
            "the image signature key is encrypted in a format that only cosign reads; create one with: openssl genpkey"
            " -algorithm EC -pkeyopt ec_paramgen_curve:P-256 (cosign verify takes its public key)"
        )
    try:
        key = serialization.load_pem_private_key(pem, password=password or None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without the cause: it might quote the key.
        raise ConfigurationError(
            "the image signature key is not a private key in PEM, or its password is missing or wrong"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigurationError("the image signature key is not on the curve P-256, which cosign uses")
    return key


def payload(image: ImageRef) -> bytes:
    """What is signed: that ``image.reference``, a digest, is an image of this repository."""
    return canonical_json(
        {
            "critical": {
                "identity": {"docker-reference": f"{image.host}/{image.repository}"},
                "image": {"docker-manifest-digest": image.reference},
                "type": KIND,
            },
            "optional": None,
        }
    )


def sign(content: bytes, key: ec.EllipticCurvePrivateKey) -> str:
    """The signature of a payload, in base64; different each time."""
    return base64.b64encode(key.sign(content, _ECDSA)).decode()


def is_signed(image: ImageRef, content: bytes, signature: str, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether ``content`` is signed with that key and names that digest; the repository may be a mirror's."""
    try:
        key.verify(base64.b64decode(signature, validate=True), content, _ECDSA)
        critical = json.loads(content)["critical"]
        return bool(critical["image"]["docker-manifest-digest"] == image.reference and critical["type"] == KIND)
    except (InvalidSignature, binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return False


def signature_tag(digest: str) -> str:
    """Where cosign looks for the signatures of an image: ``sha256-<hex>.sig``."""
    return f"{digest.replace(':', '-')}.sig"


def signature_layer(content: bytes, signature: str) -> Json:
    """The descriptor of a payload with its signature."""
    return descriptor(PAYLOAD_TYPE, content) | {"annotations": {SIGNATURE_ANNOTATION: signature}}


def signature_image(layers: list[Json]) -> tuple[bytes, bytes]:
    """Manifest and config of the image whose layers are signatures."""
    config = canonical_json(
        {
            "architecture": "",
            "os": "",
            "created": NO_TIME,
            "config": {},
            "history": [{"created": NO_TIME} for _ in layers],
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, config),
        "layers": layers,
    }
    return canonical_json(manifest), config


def push_signature(registry: ImageStore, image: ImageRef, key: ec.EllipticCurvePrivateKey) -> None:
    """Sign a pushed image, ``image.reference`` being its digest; repeating it changes nothing.

    Signatures by other keys stay.
    """
    layers = _signatures(registry, image)
    if _signed_layers(registry, image, layers, key.public_key()):
        return
    content = payload(image)
    layers.append(signature_layer(content, sign(content, key)))
    manifest, config = signature_image(layers)
    registry.upload(image.repository, descriptor("", content)["digest"], content)
    registry.upload(image.repository, descriptor("", config)["digest"], config)
    registry.put_manifest(image.repository, manifest, tag=signature_tag(image.reference))


def has_signature(registry: ImageStore, image: ImageRef, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether the registry holds a signature of the image by that key."""
    return _signed_layers(registry, image, _signatures(registry, image), key)


def _signatures(registry: ImageStore, image: ImageRef) -> list[Json]:
    manifest = registry.fetch_manifest(image.repository, signature_tag(image.reference))
    layers = [] if manifest is None else manifest.get("layers")
    if not isinstance(layers, list) or not all(map(_is_layer, layers)):
        raise RegistryRefused(
            f"{image.repository}:{signature_tag(image.reference)} is not a list of signatures; remove that tag"
        )
    return layers


def _signed_layers(registry: ImageStore, image: ImageRef, layers: list[Json], key: ec.EllipticCurvePublicKey) -> bool:
    return any(
        is_signed(image, registry.fetch_blob(image.repository, layer["digest"], limit=MAX_PAYLOAD), signature, key)
        for layer in layers[:MAX_SIGNATURES]
        if (signature := _signature(layer))
    )


def _is_layer(layer: object) -> bool:
    return isinstance(layer, dict) and isinstance(layer.get("digest"), str)


def _signature(layer: Mapping[str, Any]) -> str:
    annotations = layer.get("annotations")
    signature = annotations.get(SIGNATURE_ANNOTATION) if isinstance(annotations, dict) else None
    return signature if isinstance(signature, str) else ""
