"""Bills of materials in SPDX 2.3, as JSON: a document, its packages, how they are related. Pure.

Place in the flow: ``sbom`` writes that of a driver image with it, and ``tools/release`` those of the programs' images.
Source of the format: the SPDX specification 2.3 (https://spdx.github.io/spdx-spec/v2.3/).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from driver_builder.archives.image_archive import canonical_json

SPDX_TYPE = "application/spdx+json"
NAMESPACE = "https://driverwright.io/spdx"
NO_ASSERTION = "NOASSERTION"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A package of the document, and how it is related to which others: ``(word, their identifiers)``."""

    package: Json
    relations: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def id(self) -> str:
        """Its identifier in the document."""
        return str(self.package["SPDXID"])


def document(
    name: str, parts: Sequence[Part], *, digest: str, created: str, creator: str, licenses: Sequence[Json] = ()
) -> bytes:
    """The document that describes the first part, an image with this digest; ``licenses`` are those not in SPDX's list.

    The same values give the same bytes.
    """
    content: Json = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"{NAMESPACE}/{digest.removeprefix('sha256:')}",
        "creationInfo": {"created": created, "creators": [f"Tool: {creator}"]},
        "documentDescribes": [parts[0].id],
        "packages": [part.package for part in parts],
        "relationships": [
            {"spdxElementId": part.id, "relationshipType": word, "relatedSpdxElement": other}
            for part in parts
            for word, others in part.relations
            for other in others
        ],
    }
    return canonical_json(content | ({"hasExtractedLicensingInfos": list(licenses)} if licenses else {}))


def package(identifier: str, name: str, *, version: str = "", purpose: str, comment: str = "", url: str = "") -> Json:
    """A package, ``SPDXRef-<identifier>``, with what is not known left open; ``url`` is its package URL."""
    content: Json = {
        "SPDXID": f"SPDXRef-{identifier}",
        "name": name,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
        "primaryPackagePurpose": purpose,
    }
    content |= {"versionInfo": version} if version else {}
    content |= {"comment": comment} if comment else {}
    return content | ({"externalRefs": [purl(url)]} if url else {})


def purl(locator: str) -> Json:
    """The reference to a package by its package URL."""
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}
