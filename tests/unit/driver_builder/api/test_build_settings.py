"""Where a source comes from: exactly one kind, each pinned."""

from typing import Any

import pytest

from driver_builder.api.build_settings import ConfigMapSource, SourceSpec
from driver_builder.api.spec_parser import parse_spec
from driver_builder.base.errors import InvalidDriver
from driver_builder.model.build import SourceArchive, SourceGit, SourceImage, SourcePackage
from tests.support.driver_builder.factories import spec

PINNED = "registry.example.com/src@sha256:" + "a" * 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHA256 = "f" * 64
URL = "https://git.example.com/team/driver.git"
TAR = "https://example.com/driver-1.0.tar.gz"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({"configMap": {"name": "src"}}, ConfigMapSource(name="src"), id="ConfigMap"),
        pytest.param(
            {"image": {"reference": PINNED, "path": "/usr/src"}},
            SourceImage(reference=PINNED, path="/usr/src"),
            id="image",
        ),
        pytest.param({"image": {"reference": PINNED}}, SourceImage(reference=PINNED, path="/"), id="image's root"),
        pytest.param({"git": {"url": URL, "commit": COMMIT}}, SourceGit(url=URL, commit=COMMIT), id="git"),
        pytest.param(
            {"git": {"url": "https://example.com:2222/~a/b.git", "commit": "a" * 64, "path": "src/kernel"}},
            SourceGit(url="https://example.com:2222/~a/b.git", commit="a" * 64, path="src/kernel"),
            id="folder of a git repository",
        ),
        pytest.param({"archive": {"url": TAR, "sha256": SHA256}}, SourceArchive(url=TAR, sha256=SHA256), id="archive"),
        pytest.param(
            {"archive": {"url": TAR, "sha256": SHA256, "path": "driver-1.0/src"}},
            SourceArchive(url=TAR, sha256=SHA256, path="driver-1.0/src"),
            id="folder of an archive",
        ),
        pytest.param({"package": {"name": "jool-dkms"}}, SourcePackage(name="jool-dkms"), id="package"),
        pytest.param(
            {"package": {"name": "jool-dkms", "version": "1:4.1.9-1+b2~x"}},
            SourcePackage(name="jool-dkms", version="1:4.1.9-1+b2~x"),
            id="package with version",
        ),
        pytest.param({"git": None, "configMap": {"name": "src"}}, ConfigMapSource(name="src"), id="the other is null"),
    ],
)
def test_a_source_is_one_of_five(source: dict[str, Any], expected: SourceSpec) -> None:
    """Each kind has its own fields."""
    assert parse_spec(spec(source=source)).source == expected


def git(**changes: str) -> dict[str, Any]:
    """Make a git source."""
    return {"git": {"url": URL, "commit": COMMIT, **changes}}


@pytest.mark.parametrize(
    ("source", "field", "value", "remedy"),
    [
        pytest.param(None, "spec.source", "none", "exactly one of configMap, image, git, archive, package", id="none"),
        pytest.param(
            {"configMap": {"name": "a"}, "image": {"reference": PINNED}}, "spec.source", "configMap, image",
            "exactly one", id="two",
        ),
        pytest.param({"svn": {}}, "spec.source", "'svn'", "use one of configMap, image", id="unknown"),
        pytest.param(
            {"image": {"reference": "r.io/src:latest"}}, "spec.source.image.reference", "'r.io/src:latest'", "@sha256:",
            id="image by tag",
        ),
        pytest.param(
            {"image": {"reference": PINNED, "path": "src"}}, "spec.source.image.path", "'src'", "must be absolute",
            id="relative path in an image",
        ),
        pytest.param(
            {"image": {"reference": PINNED, "path": "/a/../etc"}}, "spec.source.image.path", "'/a/../etc'",
            "without '..'", id="path that climbs out of an image",
        ),
        pytest.param(git(url="http://h/x"), "spec.source.git.url", "'http://h/x'", "by https", id="git by http"),
        pytest.param(git(url="git@h:x"), "spec.source.git.url", "'git@h:x'", "not ssh", id="git as scp"),
        pytest.param(git(url="file:///x"), "spec.source.git.url", "'file:///x'", "by https", id="git file"),
        pytest.param(git(url="ext::sh -c x"), "spec.source.git.url", "'ext::sh -c x'", "by https", id="git helper"),
        pytest.param(git(url="ssh://git@h/x"), "spec.source.git.url", "'ssh://git@h/x'", "not ssh: builds",
                     id="git by ssh"),
        pytest.param(git(url="https://-oProxyCommand=x/y"), "spec.source.git.url", "ProxyCommand", "by https",
                     id="git host is an option"),
        pytest.param(git(url="https://u:p@h/x"), "spec.source.git.url", "u:p", "without a user", id="password"),
        pytest.param(git(commit="main"), "spec.source.git.commit", "'main'", "git rev-parse", id="branch"),
        pytest.param(git(commit=COMMIT[:12]), "spec.source.git.commit", COMMIT[:12], "40 or 64", id="short commit"),
        pytest.param(git(path="/src"), "spec.source.git.path", "'/src'", "must be relative", id="absolute folder"),
        pytest.param(git(path="a/../../b"), "spec.source.git.path", "'a/../../b'", "without '..'", id="climbs"),
        pytest.param(git(path="a b"), "spec.source.git.path", "'a b'", "letters, digits", id="blank in a folder"),
        pytest.param({"git": {"url": URL}}, "spec.source.git.commit", "missing", "full commit hash", id="no commit"),
        pytest.param({"archive": {"url": TAR}}, "spec.source.archive.sha256", "missing", "sha256sum", id="no checksum"),
        pytest.param({"archive": {"url": TAR, "sha256": "F" * 64}}, "spec.source.archive.sha256", "FFFF", "64 hex",
                     id="checksum in capitals"),
        pytest.param({"archive": {"url": "ftp://h/x", "sha256": SHA256}}, "spec.source.archive.url", "'ftp://h/x'",
                     "https or http", id="archive by ftp"),
        pytest.param({"archive": {"url": TAR + "'; reboot", "sha256": SHA256}}, "spec.source.archive.url", "reboot",
                     "https or http", id="archive with a command"),
        pytest.param({"package": {"name": "-y"}}, "spec.source.package.name", "'-y'", "v4l2loopback-dkms", id="option"),
        pytest.param({"package": {"name": "a", "version": "1 2"}}, "spec.source.package.version", "'1 2'", "0.12.7-2",
                     id="package version"),
        pytest.param({"configMap": {"name": "A_b"}}, "spec.source.configMap.name", "'A_b'", "lower case", id="name"),
    ],
)  # fmt: skip
def test_a_source_that_is_not_pinned_is_refused(source: dict[str, Any], field: str, value: str, remedy: str) -> None:
    """The message names field, value and remedy."""
    with pytest.raises(InvalidDriver) as caught:
        parse_spec(spec(source=source))
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert value in message
    assert remedy in message
