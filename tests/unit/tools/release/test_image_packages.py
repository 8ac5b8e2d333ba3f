"""What is installed in an image."""

from pathlib import Path

import pytest

from tests.unit.tools.release.images import COPYRIGHT, SITE, image
from tools.release.image_packages import Kind, Package, parse_copyright, parse_packages, read_documents


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Package]:
    """Find the packages of the image, by name."""
    found = parse_packages(read_documents(image(tmp_path_factory.mktemp("image"))))
    assert len({package.name for package in found}) == len(found)
    return {package.name: package for package in found}


def test_installed_packages_are_found_and_no_others(packages: dict[str, Package]) -> None:
    """Of the uppermost status; not what is removed and has left settings."""
    assert {(package.kind, package.name) for package in packages.values()} == {
        (Kind.DEBIAN, "base-files"), (Kind.DEBIAN, "libpython3.11-minimal"), (Kind.DEBIAN, "python3.11"),
        (Kind.PYTHON, "google_re2"), (Kind.PYTHON, "old"), (Kind.PYTHON, "urllib3"), (Kind.PYTHON, "whole"),
    }  # fmt: skip
    assert packages["base-files"].version == "12.4+deb12u12"


def test_a_package_of_debian_has_its_source_and_its_files(packages: dict[str, Package]) -> None:
    """The files where they are today: ``/lib`` is a link into ``/usr``."""
    library = packages["libpython3.11-minimal"]
    assert (library.version, library.architecture, library.source) == ("3.11.2-6+deb12u6", "amd64", "python3.11")
    assert "/usr/lib/python3.11/abc.py" in library.files
    assert packages["base-files"].source == "base-files"


def test_licences_of_debian_are_those_of_the_source(packages: dict[str, Package]) -> None:
    """A library's folder of documents may be a link to another package's."""
    assert packages["python3.11"].licenses == ("PSF-2", "Zlib")
    assert packages["libpython3.11-minimal"].licenses == ("PSF-2", "Zlib")
    assert packages["base-files"].licenses == ()


def test_licences_are_those_that_files_have() -> None:
    """In the format that Debian defines; not a text that no file names."""
    assert parse_copyright(COPYRIGHT) == ("PSF-2", "Zlib")


def test_of_a_copyright_for_people_the_texts_that_it_refers_to_are_known() -> None:
    """As of busybox's; nothing else of it is read."""
    text = (
        "License: mine\nFiles: *\n\nSee /usr/share/common-licenses/GPL-2. Parts: /usr/share/common-licenses/LGPL-2.1,"
    )
    assert parse_copyright(text) == ("GPL-2", "LGPL-2.1")
    assert parse_copyright("Made by hand.\nLicense: GPL-2\nFiles: *\n") == ()
    assert parse_copyright("") == ()


def test_a_package_of_python_has_its_licence_and_its_files(packages: dict[str, Package]) -> None:
    """An expression before classifiers, these before the old field, which may have a whole text."""
    assert packages["google_re2"].files == {f"{SITE}/re2/__init__.py", f"{SITE}/re2/a,b.so", "/opt/driverwright/bin/re"}
    assert packages["google_re2"].licenses == ("BSD License",)
    assert packages["urllib3"].license_expression == "MIT OR CC0-1.0"
    assert packages["old"].licenses == ("Apache 2.0",)
    assert packages["whole"].licenses == ()


def test_an_image_without_dpkg_has_a_file_for_each_package(tmp_path: Path) -> None:
    """As distroless images, and that of the loader."""
    status = (
        "Package: busybox-static\nStatus: install ok installed\nArchitecture: amd64\nSource: busybox\nVersion: 1:1\n"
    )
    found = parse_packages(read_documents(image(tmp_path, [{"/var/lib/dpkg/status.d/busybox-static": status}])))
    assert [(package.name, package.version) for package in found] == [("busybox-static", "1:1")]
