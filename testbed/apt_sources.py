"""Which archives this machine takes Debian from, asked of apt itself.

Nothing here names a mirror: the answer of `apt-get indextargets` is filtered to what apt has verified to be Debian's,
and written again as the sources of a private apt (`packages.PrivateApt`) or of the base image (`base_image`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_WITHOUT_UPDATES = ("sid", "unstable")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Archive:
    """One suite of one Debian archive, with the components that the machine uses of it."""

    uri: str
    suite: str
    components: tuple[str, ...]


def parse_os_release(text: str) -> dict[str, str]:
    """Return the variables of an os-release file."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def parse_index_targets(text: str) -> list[dict[str, str]]:
    """Split the output of `apt-get indextargets` into one mapping per target."""
    targets = []
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if fields:
            targets.append(fields)
    return targets


def parse_simulation(text: str) -> dict[str, str]:
    """Return package -> version of what `apt-get --simulate install` says that it would install."""
    return dict(re.findall(r"^Inst (\S+) \((\S+) ", text, re.MULTILINE))


def debian_archives(targets: Iterable[dict[str, str]], codename: str) -> list[Archive]:
    """Choose the archives of Debian release `codename`, the base suite first.

    A third party may use the release's name for its own suite, so the name alone does not do: the Release file that
    apt has verified must say `Origin: Debian` too (backports say `Debian Backports`).
    """
    suites = [codename, f"{codename}-updates", f"{codename}-security", f"{codename}-backports"]
    components: dict[tuple[str, str], list[str]] = {}
    for target in targets:
        suite, origin = target.get("Codename", ""), target.get("Origin", "")
        if suite not in suites or origin not in ("Debian", "Debian Backports") or target.get("Trusted") != "yes":
            continue
        found = components.setdefault((target["Repo-URI"].rstrip("/"), suite), [])
        if target["Component"] not in found:
            found.append(target["Component"])
    archives = [Archive(uri=uri, suite=suite, components=tuple(found)) for (uri, suite), found in components.items()]
    return sorted(archives, key=lambda archive: suites.index(archive.suite))


def archives_of(archives: Sequence[Archive], codename: str, *, backports: bool = False) -> list[Archive]:
    """Return the archives of another Debian release, which lie beside those of one: the same addresses, other suites.

    Backports are left out unless they are asked for: an ordinary installation does not have them. sid has one suite.
    """
    own = archives[0].suite
    if codename == own:
        return list(archives)
    suites = [(codename + archive.suite.removeprefix(own), archive) for archive in archives]
    suites = [(suite, archive) for suite, archive in suites if not suite.endswith("-backports")]
    if codename in _WITHOUT_UPDATES:
        suites = suites[:1]
    elif backports:
        suites.append((f"{codename}-backports", archives[0]))
    return [replace(archive, suite=suite) for suite, archive in suites]


def sources_text(archives: Iterable[Archive], types: Iterable[str] = ("deb",)) -> str:
    """Write archives in the one-line format that every apt reads."""
    return "".join(f"{line}\n" for line in _source_lines(archives, tuple(types)))


def _source_lines(archives: Iterable[Archive], types: tuple[str, ...]) -> Iterator[str]:
    for archive in archives:
        for kind in types:
            yield f"{kind} [signed-by={KEYRING}] {archive.uri} {archive.suite} {' '.join(archive.components)}"
