"""What a driver image was made of, as labels of its config and annotations of its manifest. Pure.

Place in the flow: after ``verify``, before ``push``. ``plan`` reads the modules' identities; the rest is for people and
scanners.

Source: the OCI image specification 1.1, annotations.md. Two of its keys are left out on purpose:
``org.opencontainers.image.created``, because what is built twice from the same parts has the same digest, and
``org.opencontainers.image.base.name`` and ``.digest``, which name the image whose lowest layers are shared: a driver
image begins with ``FROM scratch``. The image it was built in is ``io.driverwright.build-image``.
"""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.model import images
from driver_builder.model.build import (
    BuildRequest,
    Source,
    SourceArchive,
    SourceGit,
    SourceImage,
    SourcePackage,
    source_digest,
)
from driver_builder.model.userspace import Userspace
from driver_builder.modules.module_signature import parse_certificate

SOURCE_URL_LABEL = "org.opencontainers.image.source"
REVISION_LABEL = "org.opencontainers.image.revision"
SOURCE_LABEL = f"{images.LABEL_PREFIX}.source"
CONFIG_LABEL = f"{images.LABEL_PREFIX}.config"


def provenance(
    request: BuildRequest,
    made: VerifiedImage,
    *,
    firmware: Mapping[str, str] = MappingProxyType({}),
    userspace: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return what an image was made of, under the keys of labels and annotations.

    ``firmware`` and ``userspace`` have the digests of such files by path.
    """
    facts = [
        {"name": module.name, "identity": module.srcversion or module.build_id, "vermagic": module.vermagic}
        for module in made.modules
    ]
    needed = {name: identity for module in made.modules for name, identity in module.needs}
    others = [{"name": name, "identity": identity} for name, identity in sorted(needed.items())]
    return {
        images.KEY_LABEL: request.key,
        images.DRIVER_LABEL: request.driver,
        images.VERSION_LABEL: request.version,
        images.KERNEL_LABEL: request.target.kernel_version,
        images.OS_LABEL: request.target.os,
        images.ARCHITECTURE_LABEL: request.target.architecture,
        images.COMPILER_LABEL: made.compiler,
        images.SYMVERS_LABEL: _sha256(made.module_symvers),
        images.MODULES_LABEL: json.dumps(facts, sort_keys=True),
        **({images.NEEDED_LABEL: json.dumps(others, sort_keys=True)} if others else {}),
        images.BUILD_IMAGE_LABEL: request.base_image,
        CONFIG_LABEL: config_digest(request),
        SOURCE_LABEL: source_words(request.source),
        **({images.FIRMWARE_LABEL: _files_digest(firmware)} if firmware else {}),
        **({images.USERSPACE_LABEL: _userspace_digest(request.userspace, userspace)} if request.userspace else {}),
        **_standard(request.source),
        **_signer(request),
    }


def config_digest(request: BuildRequest) -> str:
    """``sha256:...`` of how a driver is built and loaded, whatever its source and kernel: template, arguments, modules.

    Two images of one version that behave differently differ here, or in their source.
    """
    return _sha256(json.dumps(request.config_parts, sort_keys=True))


def source_words(source: Source) -> str:
    """Where a source came from and its pin, in one line."""
    match source:
        case SourceImage():
            return f"image {source.reference} {source.path}"
        case SourceGit():
            return f"git {public_url(source.url)} {source.commit} {source.path}".rstrip()
        case SourceArchive():
            return f"archive {public_url(source.url)} sha256:{source.sha256} {source.path}".rstrip()
        case SourcePackage():
            return f"package {source.name} {source.version or ''}".rstrip()
        case _:
            return f"files sha256:{source_digest(source)}"


def public_url(url: str) -> str:
    """A URL without user, password and query: an image is read by more people than its source may be."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _standard(source: Source) -> dict[str, str]:
    match source:
        case SourceGit():
            return {SOURCE_URL_LABEL: public_url(source.url), REVISION_LABEL: source.commit}
        case SourceArchive():
            return {SOURCE_URL_LABEL: public_url(source.url), REVISION_LABEL: f"sha256:{source.sha256}"}
        case _:
            return {}


def _signer(request: BuildRequest) -> dict[str, str]:
    certificate = request.signing_certificate
    return {} if certificate is None else {images.SIGNER_LABEL: str(parse_certificate(certificate))}


def _files_digest(files: Mapping[str, str]) -> str:
    return _sha256(json.dumps(sorted(files.items())))


def _userspace_digest(userspace: Userspace, files: Mapping[str, str]) -> str:
    """Digest the files, and what they were made of: only that says something of links between them."""
    return _sha256(json.dumps([userspace.digest, sorted(files.items())]))


def _sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
