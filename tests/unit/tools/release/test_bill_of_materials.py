"""The bill of materials of a program's image."""

import json
from pathlib import Path
from typing import Any

import pytest

from driver_builder.model.images import ImageRef
from tests.support.spdx import problems
from tests.unit.tools.release.images import image
from tools.release.bill_of_materials import bill_of_materials, package_url
from tools.release.image_packages import Kind, Package, read_documents
from tools.release.origin import Origin

NAME = ImageRef("docker.io", "driverwright/nfd-worker", "1.2.3")
ORIGIN = Origin(version="1.2.3", revision="0" * 40, epoch=1_700_000_000)


def written(folder: Path) -> bytes:
    """Write the document of the image."""
    made = image(folder)
    return bill_of_materials(made, NAME, read_documents(made), ORIGIN)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return it as JSON."""
    content: dict[str, Any] = json.loads(written(tmp_path_factory.mktemp("image")))
    return content


def test_it_is_valid(tmp_path: Path) -> None:
    """By the validator of SPDX's own library, which knows the list of licences."""
    assert problems(written(tmp_path)) == []


def test_it_has_every_package_with_version_licence_and_url(document: dict[str, Any]) -> None:
    """The licence as an expression, or that nothing is known."""
    found = {
        item["externalRefs"][0]["referenceLocator"]: (item["versionInfo"], item["licenseDeclared"])
        for item in document["packages"][1:]
    }
    assert found == {
        "pkg:deb/debian/base-files@12.4%2Bdeb12u12?arch=amd64&distro=debian-12": ("12.4+deb12u12", "NOASSERTION"),
        "pkg:deb/debian/libpython3.11-minimal@3.11.2-6%2Bdeb12u6?arch=amd64&distro=debian-12&upstream=python3.11": (
            "3.11.2-6+deb12u6",
            "PSF-2.0 AND Zlib",
        ),
        "pkg:deb/debian/python3.11@3.11.2-6%2Bdeb12u6?arch=amd64&distro=debian-12": (
            "3.11.2-6+deb12u6",
            "PSF-2.0 AND Zlib",
        ),
        "pkg:pypi/google-re2@1.1": ("1.1", "LicenseRef-BSD-License"),
        "pkg:pypi/old@1": ("1", "Apache-2.0"),
        "pkg:pypi/urllib3@2.8.0": ("2.8.0", "MIT OR CC0-1.0"),
        "pkg:pypi/whole@1": ("1", "NOASSERTION"),
    }
    assert document["hasExtractedLicensingInfos"] == [
        {"licenseId": "LicenseRef-BSD-License", "name": "BSD License", "extractedText": "BSD License"}
    ]


def test_all_of_it_is_in_the_image(document: dict[str, Any]) -> None:
    """Which is the thing described, under its digest and of its commit."""
    described, *others = document["packages"]
    assert document["documentDescribes"] == [described["SPDXID"]]
    assert described["comment"] == f"of commit {'0' * 40}"
    assert described["externalRefs"][0]["referenceLocator"].startswith("pkg:oci/nfd-worker@sha256%3A")
    assert [(item["relationshipType"], item["relatedSpdxElement"]) for item in document["relationships"]] == [
        ("CONTAINS", other["SPDXID"]) for other in others
    ]


def test_the_same_image_has_the_same_document(tmp_path: Path) -> None:
    """To the byte: its time is that of the commit."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = written(tmp_path / "a")
    assert written(tmp_path / "b") == first
    assert json.loads(first)["creationInfo"]["created"] == "2023-11-14T22:13:20Z"


def test_an_epoch_in_a_version_is_escaped() -> None:
    """As package URLs demand."""
    package = Package(
        kind=Kind.DEBIAN, name="libstdc++6", version="1:12.2-1", architecture="amd64", source="libstdc++6"
    )
    assert package_url(package, ("debian", "")) == "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2-1?arch=amd64"
