"""What a build is made of, and what its images say of it."""

import subprocess
from pathlib import Path

import pytest

from tools.release.origin import Origin, OriginError, oci_labels, parse_epoch, public_url, read_origin

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ORIGIN = Origin(version="1.2.3", revision=COMMIT, epoch=1_700_000_000, url="https://example.com/driverwright")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a repository with one commit, of a known time."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    git(tmp_path, "remote", "add", "origin", "https://someone:secret@example.com/driverwright.git")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    """Run git without settings of the machine."""
    environment = {
        "PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": "1700000000 +0000",
    }  # fmt: skip
    return subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_clone_says_commit_time_and_place(clone: Path) -> None:
    """The address without its password; nothing differs."""
    assert read_origin(clone, {}) == Origin(
        version="1.2.3",
        revision=git(clone, "rev-parse", "HEAD"),
        epoch=1_700_000_000,
        url="https://example.com/driverwright",
    )


def test_files_that_differ_are_named(clone: Path) -> None:
    """Changed ones and new ones, but none that git ignores."""
    (clone / "pyproject.toml").write_text('[project]\nversion = "1.2.4"\n')
    (clone / ".gitignore").write_text("*.log\n")
    (clone / "x.log").touch()
    found = read_origin(clone, {})
    assert found.version == "1.2.4"
    assert set(found.changed) == {"pyproject.toml", ".gitignore"}


def test_the_time_can_be_given(clone: Path) -> None:
    """As reproducible builds do."""
    assert read_origin(clone, {"SOURCE_DATE_EPOCH": "1"}).epoch == 1


def test_a_folder_without_git_has_a_version_alone(tmp_path: Path) -> None:
    """Such as an unpacked source distribution, also one inside of another repository."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    assert read_origin(tmp_path, {}) == Origin(version="1.2.3")


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "99999999999"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    """With the variable, its value and what to give."""
    with pytest.raises(OriginError, match=f"SOURCE_DATE_EPOCH is '{text}': give seconds"):
        parse_epoch(text)


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://example.com/a/b.git", "https://example.com/a/b"),
        ("https://user:secret@example.com:8443/b", "https://example.com:8443/b"),
        ("https://server/a.git", ""),
        ("git@example.com:a/b.git", ""),
        ("/srv/git/b", ""),
        ("", ""),
    ],
)
def test_only_what_anyone_can_open_is_a_source(remote: str, url: str) -> None:
    """No password, no path of a machine, no host of a private network."""
    assert public_url(remote) == url


def test_labels_are_those_that_oci_defines() -> None:
    """With the time of the commit; what is not known is left out."""
    assert oci_labels(ORIGIN, base_image="debian:bookworm-slim") == {
        "org.opencontainers.image.version": "1.2.3",
        "org.opencontainers.image.revision": COMMIT,
        "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
        "org.opencontainers.image.source": "https://example.com/driverwright",
        "org.opencontainers.image.base.name": "debian:bookworm-slim",
    }
    assert oci_labels(Origin(version="1.2.3"), base_image="x").keys() == {
        "org.opencontainers.image.version",
        "org.opencontainers.image.base.name",
    }


def test_the_label_of_a_changed_tree_says_so() -> None:
    """Nobody takes it for the commit."""
    changed = Origin(version="1", revision=COMMIT, changed=("x",))
    assert oci_labels(changed, base_image="x")["org.opencontainers.image.revision"] == f"{COMMIT}-dirty"
