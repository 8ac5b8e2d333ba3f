"""The bill of materials of an image, with real modules."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.archives.image_layers import store_layer
from driver_builder.builds.pipeline.image_contents import Content, image_contents
from driver_builder.builds.pipeline.sbom import sbom
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages
from tests.support.driver_builder.factories import KERNEL, target
from tests.support.driver_builder.image_tars import tar_of
from tests.support.spdx import problems

MODULES = Path(__file__).parents[4] / "data" / "modules"
PROBE = (MODULES / "dw_probe.ko").read_bytes()
HELPER = (MODULES / "dw_helper.ko").read_bytes()
IMAGE = ImageRef("r.io:5000", "team/edu", "sha256:" + "a" * 64)
REQUEST = BuildRequest(
    recipe="k1",
    driver=DriverKey("team/edu"),
    version="1.2",
    target=target(),
    template="debian",
    base_image="debian@sha256:" + "b" * 64,
    source=SourceFiles(files={"a.c": b"int x;"}),
    modules=(ModuleSpec(name="dw_probe"),),
)
MADE = VerifiedImage(
    image=ImageArchive(config={}, layers=()),
    module_symvers="",
    compiler="gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
    modules=(),
)
FOLDER = f"/lib/modules/{KERNEL}/updates"
FILES = {
    f"{FOLDER}/dw_probe.ko": PROBE,
    f"{FOLDER}/dw_helper.ko": HELPER,
    f"/lib/modules/{KERNEL}/modules.dep": b"",
    "/firmware/edu/fw.bin": b"fw",
}


def contents(files: dict[str, bytes]) -> tuple[Content, ...]:
    """What is found in an image of these files."""
    with TemporaryDirectory() as folder:
        tar = tar_of({path.lstrip("/"): content for path, content in files.items()})
        layer = store_layer([tar], Path(folder, "layer.tar.gz"))
        return image_contents(ImageArchive(config={}, layers=(layer,)))


def document(request: BuildRequest = REQUEST, files: dict[str, bytes] = FILES) -> dict[str, Any]:
    """The document as JSON."""
    content: dict[str, Any] = json.loads(sbom(IMAGE, request, MADE, contents(files)))
    return content


def package(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """The one package of that name."""
    (found,) = [item for item in content["packages"] if item["name"] == name]
    assert isinstance(found, dict)
    return found


def test_the_same_image_has_the_same_document() -> None:
    """To the byte, whatever order the files were read in; another image's has another name."""
    first = sbom(IMAGE, REQUEST, MADE, contents(FILES))
    assert sbom(IMAGE, REQUEST, MADE, contents(dict(reversed(FILES.items())))) == first
    other = json.loads(sbom(IMAGE.at("sha256:" + "c" * 64), REQUEST, MADE, contents(FILES)))
    assert other["documentNamespace"] != document()["documentNamespace"]
    assert document()["creationInfo"]["created"] == "1970-01-01T00:00:00Z"


def test_what_spdx_demands_is_there() -> None:
    """Identifiers are unique and of its characters, every relation is between parts that exist."""
    content = document()
    ids = [item["SPDXID"] for item in content["packages"]]
    assert (content["spdxVersion"], content["dataLicense"]) == ("SPDX-2.3", "CC0-1.0")
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", identifier) for identifier in ids)
    ends = {side for item in content["relationships"] for side in (item["spdxElementId"], item["relatedSpdxElement"])}
    assert ends <= set(ids)
    assert content["documentDescribes"] == ["SPDXRef-Image"]


@pytest.mark.parametrize(
    "source",
    [
        SourceFiles(files={"a.c": b"int x;"}),
        SourceGit(url="https://example.com/edu.git", commit="d" * 40, path="src"),
        SourceArchive(url="https://example.com/edu.tar.gz", sha256="c" * 64),
        SourceImage(reference="r.io/edu-source:1@sha256:" + "e" * 64, path="/src"),
        SourcePackage(name="edu-dkms", version="1:1.0-1"),
    ],
    ids=lambda source: type(source).__name__,
)
def test_it_is_valid(source: Source) -> None:
    """By SPDX's own library, whatever the source."""
    document = sbom(IMAGE, replace(REQUEST, source=source), MADE, contents(FILES))
    assert problems(document) == []


def test_a_file_may_have_any_name() -> None:
    """An archive gives firmware names that are not UTF-8."""
    names = [item["name"] for item in document(files={**FILES, "/firmware/\udcff.bin": b"fw"})["packages"]]
    assert "\udcff.bin" in names


def test_a_module_is_named_by_what_identifies_its_build() -> None:
    """Its srcversion, its checksum, and its license in SPDX's words with the kernel's own beside it."""
    probe = package("dw_probe.ko", document())
    assert probe["packageFileName"] == f"{FOLDER}/dw_probe.ko"
    assert probe["checksums"] == [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(PROBE).hexdigest()}]
    assert "srcversion 509CB8B26651F6450DB59D4" in probe["comment"]
    assert 'MODULE_LICENSE("GPL' in probe["comment"]
    assert probe["licenseDeclared"] == "GPL-2.0-only"


def test_everything_of_the_image_is_contained_in_it() -> None:
    """All modules, also those that nobody named, and firmware; not what depmod made of them."""
    content = document()
    contained = {
        item["relatedSpdxElement"] for item in content["relationships"] if item["relationshipType"] == "CONTAINS"
    }
    names = {item["name"] for item in content["packages"] if item["SPDXID"] in contained}
    assert names == {"dw_probe.ko", "dw_helper.ko", "fw.bin"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            UserspaceArchive(url="https://user:secret@example.com/edu.tar?a=b", sha256="c" * 64),
            {
                "downloadLocation": "https://example.com/edu.tar",
                "checksums": [{"algorithm": "SHA256", "checksumValue": "c" * 64}],
            },
            id="archive",
        ),
        pytest.param(
            UserspacePackages(pins=(("libedu1", "1:1.0-1"), ("edu-tools", "1.0-2"))),
            {"comment": "packages libedu1=1:1.0-1 edu-tools=1.0-2"},
            id="packages",
        ),
    ],
)
def test_a_user_space_is_one_part_of_the_image(
    content: UserspaceArchive | UserspacePackages, expected: dict[str, object]
) -> None:
    """Whatever files it has: it says what it was made of."""
    request = replace(REQUEST, userspace=Userspace(content=content))
    made = document(request, {**FILES, "/userspace/lib/libedu.so.1": b"library"})
    (part,) = (item for item in made["packages"] if item["SPDXID"] == "SPDXRef-Userspace")
    assert {name: part[name] for name in expected} == expected
    relation = {"spdxElementId": "SPDXRef-Image", "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"]}
    assert relation in made["relationships"]
    assert "libedu.so.1" not in {item["name"] for item in made["packages"]}


@pytest.mark.parametrize(
    ("name", "relation", "version"),
    [
        pytest.param("team/edu", "GENERATES", "1.2", id="source"),
        pytest.param(f"linux-headers-{KERNEL}", "BUILD_DEPENDENCY_OF", KERNEL, id="headers"),
        pytest.param("gcc", "BUILD_TOOL_OF", "(Debian 12.2.0-14+deb12u1) 12.2.0", id="compiler"),
        pytest.param("debian", "BUILD_TOOL_OF", "sha256:" + "b" * 64, id="build image"),
    ],
)
def test_what_a_module_was_made_of_is_related_to_it(name: str, relation: str, version: str) -> None:
    """None of it is in the image."""
    content = document()
    part = package(name, content)
    related = [item for item in content["relationships"] if item["spdxElementId"] == part["SPDXID"]]
    assert {item["relationshipType"] for item in related} == {relation}
    assert len(related) == 2
    assert part["versionInfo"] == version


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            SourceGit(url="https://anna:s3cret@git.example.com/edu.git", commit="c" * 40, path="driver"),
            {"downloadLocation": f"git+https://git.example.com/edu.git@{'c' * 40}#driver"},
            id="git",
        ),
        pytest.param(
            SourceArchive(url="https://example.com/edu.tar?token=s3cret", sha256="d" * 64),
            {
                "downloadLocation": "https://example.com/edu.tar",
                "checksums": [{"algorithm": "SHA256", "checksumValue": "d" * 64}],
            },
            id="archive",
        ),
        pytest.param(
            SourceImage(reference=f"r.io:5000/team/src@sha256:{'e' * 64}", path="/src"),
            {"purl": f"pkg:oci/src@sha256%3A{'e' * 64}"},
            id="image",
        ),
        pytest.param(
            SourcePackage(name="edu-dkms", version="1:2+b1"),
            {"purl": "pkg:deb/debian/edu-dkms@1%3A2%2Bb1"},
            id="package",
        ),
        pytest.param(SourcePackage(name="edu-dkms"), {"purl": "pkg:deb/debian/edu-dkms"}, id="package, the newest"),
    ],
)
def test_a_source_is_found_again(source: Source, expected: dict[str, Any]) -> None:
    """By the form that SPDX has for its kind, and never with a password."""
    content = document(replace(REQUEST, source=source))
    part = package("team/edu", content)
    part["purl"] = next((item["referenceLocator"] for item in part.get("externalRefs", ())), None)
    assert {name: part[name] for name in expected} == expected
    assert "s3cret" not in json.dumps(content)
