"""The bill of materials of a program's image: the packages in it, Debian's and Python's. Pure: values in, SPDX out.

Its own facts are the packages' versions and what they say of their licences: nothing here judges them
(``licenseConcluded`` stays open). Package URLs have what scanners compare with advisories: the distribution, and the
source package where it has another name.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.builds.pipeline import spdx
from driver_builder.builds.pipeline.spdx import NO_ASSERTION
from driver_builder.model.images import ImageRef
from tools.release.image_packages import OS_RELEASE, Kind, Package, parse_packages
from tools.release.licenses import spdx_expression
from tools.release.origin import Origin


def bill_of_materials(image: ImageArchive, name: ImageRef, documents: Mapping[str, str], origin: Origin) -> bytes:
    """Write the document of an image that has a name; ``documents`` are what is read of it."""
    system = _system(documents.get(OS_RELEASE, ""))
    references: dict[str, str] = {}
    contents = [_part(package, system, references) for package in parse_packages(documents)]
    query = urlencode({"repository_url": f"{name.host}/{name.repository}", "arch": image.config["architecture"]})
    last = name.repository.rpartition("/")[2]
    described = spdx.package(
        "Image",
        f"{name.host}/{name.repository}",
        version=origin.version,
        purpose="CONTAINER",
        comment=f"of commit {origin.revision}" if origin.revision else "",
        url=f"pkg:oci/{last}@{quote(image.digest, safe='')}?{query}",
    )
    parts = [spdx.Part(described, (("CONTAINS", tuple(part.id for part in contents)),)), *contents]
    licenses = [
        {"licenseId": reference, "name": text, "extractedText": text} for reference, text in sorted(references.items())
    ]
    return spdx.document(
        str(name), parts, digest=image.digest, created=origin.created, creator="driverwright-release", licenses=licenses
    )


def _part(package: Package, system: tuple[str, str], references: dict[str, str]) -> spdx.Part:
    expression, found = spdx_expression(package.licenses)
    references |= {} if package.license_expression else found
    content = spdx.package(
        _identifier(package),
        package.name,
        version=package.version,
        purpose="LIBRARY" if package.kind is Kind.PYTHON else "OTHER",
        url=package_url(package, system),
    )
    return spdx.Part(content | {"licenseDeclared": package.license_expression or expression or NO_ASSERTION})


def package_url(package: Package, system: tuple[str, str]) -> str:
    """Return the package URL; ``system`` is the id and the version of the distribution."""
    version = quote(package.version, safe="")
    if package.kind is Kind.PYTHON:
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', package.name).lower()}@{version}"
    os_id, os_version = system
    facts = {
        "arch": package.architecture,
        "distro": f"{os_id}-{os_version}" if os_version else "",
        "upstream": package.source if package.source != package.name else "",
    }
    query = urlencode({name: value for name, value in facts.items() if value})
    return f"pkg:deb/{os_id}/{quote(package.name, safe='')}@{version}?{query}"


def _identifier(package: Package) -> str:
    """Two architectures of a package may be installed beside each other."""
    words: Sequence[str] = [package.kind, package.name, package.architecture]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(word for word in words if word))


def _system(os_release: str) -> tuple[str, str]:
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    return found.get("ID", "debian"), found.get("VERSION_ID", "")
