"""The bill of materials of a driver image: what is in it, and what that was made of. Pure: values in, SPDX out.

Place in the flow: after ``push`` gave the image its digest; ``referrers`` attaches the document to it.

SPDX 2.3 in JSON, and not CycloneDX: its relations ``GENERATED_FROM``, ``BUILD_DEPENDENCY_OF`` and ``BUILD_TOOL_OF`` say
what source, headers and compiler are to a module, and scanners of images read it.

The same image gives the same document to the byte: its namespace is named after the image's digest, and the time that
SPDX demands is the one that the image's own config bears, 1970.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import assert_never
from urllib.parse import quote

from driver_builder.archives.image_archive import NO_TIME
from driver_builder.builds.pipeline import spdx
from driver_builder.builds.pipeline.image_contents import Content, Kind
from driver_builder.builds.pipeline.provenance import public_url, source_words
from driver_builder.builds.pipeline.spdx import NO_ASSERTION, Json
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.model.build import (
    BuildRequest,
    SourceArchive,
    SourceGit,
    SourceImage,
    SourcePackage,
    source_digest,
)
from driver_builder.model.images import ImageRef
from driver_builder.model.userspace import UserspaceArchive, UserspacePackages

_HEADERS = {"debian": "linux-headers-{}", "ubuntu": "linux-headers-{}", "sles": "kernel-default-devel {}"}
_LICENSES = {"GPL": "GPL-2.0-only", "GPL v2": "GPL-2.0-only", "Dual MIT/GPL": "MIT OR GPL-2.0-only"}
"""MODULE_LICENSE as SPDX. The kernel's ``GPL`` may mean ``only`` or ``or later``: the narrower is used."""


def sbom(image: ImageRef, request: BuildRequest, made: VerifiedImage, found: Sequence[Content]) -> bytes:
    """The SPDX document of an image, ``image.reference`` being its digest; ``found`` is what lies in it."""
    contents = tuple(part for file in found if (part := _content(file)) is not None)
    modules = tuple(part.id for part in contents if "-Module-" in part.id)
    contents = (*contents, *_userspace(request))
    parts = (_image(image, request, contents), *contents, *_made_of(request, made, modules))
    return spdx.document(str(image), parts, digest=image.reference, created=NO_TIME, creator="driver-builder")


def _image(image: ImageRef, request: BuildRequest, contents: tuple[spdx.Part, ...]) -> spdx.Part:
    name = image.repository.rpartition("/")[2]
    query = f"repository_url={quote(f'{image.host}/{image.repository}', safe='')}&arch={request.target.architecture}"
    package = spdx.package(
        "Image",
        f"{image.host}/{image.repository}",
        version=request.version,
        purpose="CONTAINER",
        comment=f"driver {request.driver} for {request.target}, build key {request.key}",
        url=f"pkg:oci/{name}@{quote(image.reference, safe='')}?{query}",
    )
    return spdx.Part(package, (("CONTAINS", tuple(part.id for part in contents)),))


def _content(found: Content) -> spdx.Part | None:
    match found.kind:
        case Kind.MODULE:
            declared = _LICENSES.get(found.license, NO_ASSERTION)
            return _file(_id("Module", found.path), found, purpose="FILE", declared=declared)
        case Kind.FIRMWARE:
            return _file(_id("Firmware", found.path), found, purpose="FIRMWARE", declared=NO_ASSERTION)
        case Kind.USERSPACE:
            # It is one part of the document, whatever files it has: there may be thousands.
            return None
        case _ as never:
            assert_never(never)


def _userspace(request: BuildRequest) -> Iterator[spdx.Part]:
    userspace = request.userspace
    if userspace is None:
        return
    package = spdx.package(
        "Userspace", request.driver, version=request.version, purpose="LIBRARY", comment=userspace.words
    )
    match userspace.content:
        case UserspaceArchive() as archive:
            checksum = {"algorithm": "SHA256", "checksumValue": archive.sha256}
            package |= {"downloadLocation": public_url(archive.url), "checksums": [checksum]}
        case UserspacePackages(pins=pins):
            kind = f"pkg:deb/{request.target.os_id}"
            urls = [f"{kind}/{name}@{quote(version, safe='')}" for name, version in pins]
            package |= {"externalRefs": [spdx.purl(url) for url in urls]}
        case _ as never:
            assert_never(never)
    yield spdx.Part(package, ())


def _file(identifier: str, found: Content, *, purpose: str, declared: str) -> spdx.Part:
    package = spdx.package(
        identifier,
        found.path.rpartition("/")[2],
        version=found.version,
        purpose=purpose,
        comment=found.comment,
    )
    package |= {
        "packageFileName": found.path,
        "checksums": [{"algorithm": "SHA256", "checksumValue": found.sha256}],
        "licenseDeclared": declared,
    }
    return spdx.Part(package, ())


def _made_of(request: BuildRequest, made: VerifiedImage, modules: tuple[str, ...]) -> Iterator[spdx.Part]:
    """What the modules were made of, none of which is in the image."""
    kernel = request.target.kernel_version
    symvers = hashlib.sha256(made.module_symvers.encode()).hexdigest()
    compared = f"Module.symvers of {kernel} has sha256:{symvers}"
    headers = _HEADERS.get(request.target.os_id, "kernel-devel-{}").format(kernel)
    compiler = made.compiler.strip()
    name, _, version = compiler.partition(" ")
    yield spdx.Part(_source(request), (("GENERATES", modules),))
    yield spdx.Part(
        spdx.package("Headers", headers, version=kernel, purpose="SOURCE", comment=compared),
        (("BUILD_DEPENDENCY_OF", modules),),
    )
    yield spdx.Part(
        spdx.package("Compiler", name or "unknown", version=version, purpose="APPLICATION", comment=compiler),
        (("BUILD_TOOL_OF", modules),),
    )
    base, _, digest = request.base_image.partition("@")
    yield spdx.Part(
        spdx.package("BuildImage", base, version=digest, purpose="CONTAINER", comment="the image of the build stage"),
        (("BUILD_TOOL_OF", modules),),
    )


def _source(request: BuildRequest) -> Json:
    package = spdx.package(
        "Source", request.driver, version=request.version, purpose="SOURCE", comment=source_words(request.source)
    )
    match request.source:
        case SourceGit() as git:
            # RFC 3986's userinfo is gone, as are queries: an SBOM is public.
            folder = f"#{git.path}" if git.path else ""
            return package | {"downloadLocation": f"git+{public_url(git.url)}@{git.commit}{folder}"}
        case SourceArchive() as archive:
            checksum = {"algorithm": "SHA256", "checksumValue": archive.sha256}
            return package | {"downloadLocation": public_url(archive.url), "checksums": [checksum]}
        case SourceImage() as source:
            name = source.reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
            digest = source.reference.rpartition("@")[2]
            return package | {"externalRefs": [spdx.purl(f"pkg:oci/{name}@{quote(digest, safe='')}")]}
        case SourcePackage() as named:
            version = f"@{quote(named.version, safe='')}" if named.version else ""
            return package | {"externalRefs": [spdx.purl(f"pkg:deb/{request.target.os_id}/{named.name}{version}")]}
        case files:
            return package | {"checksums": [{"algorithm": "SHA256", "checksumValue": source_digest(files)}]}


def _id(kind: str, path: str) -> str:
    """An identifier of letters, digits, . and -, which is one path's alone."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", path.rpartition("/")[2])
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
    return f"{kind}-{words}-{digest[:8]}"
