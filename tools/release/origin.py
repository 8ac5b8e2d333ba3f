"""What a build is made of: version, commit, time and place of the source; and the labels by which images say it.

The labels are those of the OCI image specification 1.0, "Pre-Defined Annotation Keys". What never changes is in the
Dockerfiles.
"""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from driver_builder.builds.pipeline import provenance

_PREFIX = "org.opencontainers.image"


class OriginError(Exception):
    """It cannot be said what the source is; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source: ``revision`` is its commit, ``epoch`` the time of it in seconds, ``url`` where it is published.

    ``changed`` are files that differ from the commit. A source that is no git repository has only a version, and the
    time that ``SOURCE_DATE_EPOCH`` says.
    """

    version: str
    revision: str = ""
    epoch: int | None = None
    url: str = ""
    changed: tuple[str, ...] = ()

    @property
    def created(self) -> str:
        """The time as RFC 3339 writes it, empty where it is not known."""
        return "" if self.epoch is None else datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_origin(root: Path, environment: Mapping[str, str]) -> Origin:
    """Read it of ``pyproject.toml`` and git.

    Raises:
        OriginError: ``SOURCE_DATE_EPOCH`` is no time.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    given = parse_epoch(environment.get("SOURCE_DATE_EPOCH", ""))
    commit = _git(root, "log", "-1", "--format=%H %ct") if (root / ".git").exists() else ""
    if not commit:
        return Origin(version=version, epoch=given)
    revision, _, time = commit.partition(" ")
    return Origin(
        version=version,
        revision=revision,
        epoch=int(time) if given is None else given,
        url=public_url(_git(root, "remote", "get-url", "origin")),
        changed=tuple(line[3:] for line in _git(root, "status", "--porcelain").splitlines()),
    )


def parse_epoch(text: str) -> int | None:
    """Read ``SOURCE_DATE_EPOCH``: None where it is empty.

    Raises:
        OriginError: it is not a number of seconds.
    """
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise OriginError(
            f"SOURCE_DATE_EPOCH is {text!r}: give seconds since 1970, as `git log -1 --format=%ct` prints"
        )
    return int(text)


def public_url(remote: str) -> str:
    """Return a remote's address that anyone can open, without a password; empty for paths, ssh and hosts without a dot.

    Pure.
    """
    parts = urlsplit(remote.strip())
    if parts.scheme != "https" or "." not in (parts.hostname or ""):
        return ""
    return provenance.public_url(parts.geturl()).removesuffix(".git")


def oci_labels(origin: Origin, *, base_image: str) -> dict[str, str]:
    """Return the labels of an image that is made of this source. Pure."""
    revision = f"{origin.revision}-dirty" if origin.revision and origin.changed else origin.revision
    found = {
        "version": origin.version,
        "revision": revision,
        "created": origin.created,
        "source": origin.url,
        "base.name": base_image,
    }
    return {f"{_PREFIX}.{name}": value for name, value in found.items() if value}


def _git(root: Path, *words: str) -> str:
    """Ask git, whoever owns the folder; what it refuses, or cannot say, is empty."""
    argv = ["git", "-c", f"safe.directory={root}", "-C", str(root), *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.rstrip("\n") if done.returncode == 0 else ""
