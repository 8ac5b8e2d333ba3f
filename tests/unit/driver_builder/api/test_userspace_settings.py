"""How ``spec.userspace`` is read."""

from typing import Any

import pytest

from driver_builder.api.build_settings import UserspaceSettings
from driver_builder.api.spec_parser import read_spec
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages

Json = dict[str, Any]

URL, SHA256 = "https://example.com/edu.tar.gz", "a" * 64
ARCHIVE = {"archive": {"url": URL, "sha256": SHA256}, "versionFile": "VERSION"}
PACKAGES = {"packages": [{"name": "libedu1", "version": "1.0-1"}, {"name": "edu-tools", "version": "1:1.0-2"}]}
TWO_RELEASES = {"packages": [{"name": "libedu1", "version": "1.0-1"}, {"name": "edu-tools", "version": "1.1-1"}]}
SPEC: Json = {
    "version": "1",
    "image": "r.io/a",
    "source": {"configMap": {"name": "a"}},
    "module": {"names": ["edudrv"]},
}


def read(userspace: Json | None, **module: Any) -> UserspaceSettings | None:
    """Read a spec with this user space."""
    spec = {**SPEC, "userspace": userspace, "module": {**SPEC["module"], **module}}
    reading = read_spec(spec)
    assert reading.spec is not None, reading.problems
    assert reading.unknown == ()
    return reading.spec.userspace


def problems(userspace: Any, **module: Any) -> list[str]:
    """Name what is wrong with it."""
    spec = {**SPEC, "userspace": userspace, "module": {**SPEC["module"], **module}}
    return [str(problem) for problem in read_spec(spec).problems]


def test_an_archive() -> None:
    """With the size and the place of every driver."""
    content = UserspaceArchive(url=URL, sha256=SHA256)
    assert read(ARCHIVE) == UserspaceSettings(
        build=Userspace(content=content, version_file="VERSION", size_limit=512 << 20)
    )


def test_packages() -> None:
    """All of one release; their revisions may differ."""
    content = UserspacePackages(pins=(("libedu1", "1.0-1"), ("edu-tools", "1:1.0-2")))
    wanted = UserspaceSettings(build=Userspace(content=content, size_limit=1 << 30), host_path="/run/nvidia/driver")
    assert read({**PACKAGES, "sizeLimit": "1Gi", "hostPath": "/run/nvidia/driver"}) == wanted


def test_a_driver_without() -> None:
    """Most drivers."""
    assert read(None) is None


@pytest.mark.parametrize(
    ("userspace", "words"),
    [
        pytest.param({}, "spec.userspace: exactly one of archive, packages is needed", id="neither"),
        pytest.param({**ARCHIVE, **PACKAGES}, "spec.userspace: exactly one of archive, packages is needed", id="both"),
        pytest.param({"archive": ARCHIVE["archive"]}, "spec.userspace.versionFile: is missing", id="no version"),
        pytest.param({**ARCHIVE, "versionFile": "/a/../b"}, "spec.userspace.versionFile: '/a/../b'", id="dots"),
        pytest.param(
            {**ARCHIVE, "archive": {"url": URL}}, "spec.userspace.archive.sha256: is missing", id="not pinned"
        ),
        pytest.param(
            {"packages": [{"name": "a"}]}, "spec.userspace.packages[0].version: is missing", id="packages not pinned"
        ),
        pytest.param({"packages": []}, "spec.userspace.packages: name at least one package", id="no packages"),
        pytest.param(
            TWO_RELEASES, "spec.userspace.packages: they have different versions, 1.0, 1.1: take", id="two releases"
        ),
        pytest.param({**ARCHIVE, "sizeLimit": "5Gi"}, "spec.userspace.sizeLimit: '5Gi' is too small", id="too large"),
        pytest.param({**ARCHIVE, "sizeLimit": "1k"}, "spec.userspace.sizeLimit: '1k' is not a size", id="no size"),
        pytest.param({**ARCHIVE, "hostPath": "/run/a"}, "spec.userspace.hostPath: '/run/a' is not allowed", id="place"),
    ],
)
def test_what_is_wrong_is_named(userspace: Json, words: str) -> None:
    """With its field."""
    assert any(problem.startswith(words) for problem in problems(userspace)), problems(userspace)


def test_firmware_of_a_user_space_needs_one() -> None:
    """It is taken out of it."""
    assert problems(ARCHIVE, firmwarePath="/userspace/lib/firmware") == []
    (problem,) = problems(None, firmwarePath="/userspace/lib/firmware")
    assert problem.startswith("spec.module.firmwarePath: '/userspace/lib/firmware' is of the user space")


def test_packages_of_several_releases_need_a_file_with_the_version() -> None:
    """A library that they bring may have a version of its own."""
    assert problems({**TWO_RELEASES, "versionFile": "usr/lib/libedu.so.1.0"}) == []
