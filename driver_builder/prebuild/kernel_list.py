"""Lists of kernels to build for: one release per line, or the ``list.json`` of kernel-crawler. Pure.

kernel-crawler (https://github.com/falcosecurity/kernel-crawler) writes an object with a list for each distribution;
an entry has ``kernelrelease``, ``target`` (the distribution, as driverkit names it) and ``headers`` (URLs of packages).
For Debian and Ubuntu the release is made up of the package's version or of the name of its source, and is not what
``uname -r`` prints: there it is taken from the names of the header packages.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from driver_builder.base.errors import ConfigurationError
from driver_builder.model.kernels import is_kernel_version

_TARGETS = {
    "amzn": "amazonlinux",
    "rhel": "redhat",
    "opensuse-leap": "opensuse",
    "opensuse-tumbleweed": "opensuse",
}
"""os-release ID to ``target``, where they differ; Amazon's has the version added, from 2 on."""
_ENTERPRISE = frozenset({"almalinux", "centos", "ol", "rhel", "rocky"})
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_DEB = re.compile(r"/linux-headers-(?P<release>[^/_]+)_[^/_]+_(?P<architecture>[a-z0-9]+)\.deb$")
_NUMBERS = re.compile(r"[0-9]+|[^0-9]+")


def parse_kernels(text: str, *, os_id: str, os_version: str, architecture: str) -> tuple[str, ...]:
    """Read a list; each release once, in the order of their numbers.

    Raises:
        ConfigurationError: it is neither of both, or has no kernel of this operating system.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return _sorted(_lines(text))
    if not isinstance(document, dict):
        raise ConfigurationError("it is JSON, but not a list.json of kernel-crawler: {DISTRIBUTION: [{kernelrelease}]}")
    if os_id == "flatcar":
        raise ConfigurationError(
            "kernel-crawler lists releases of Flatcar, not of its kernels: write the kernels, one per line"
        )
    found = _sorted(_crawled(document, os_id, os_version, architecture))
    if not found:
        known = ", ".join(sorted({str(entry.get("target")) for entry in _entries(document)})) or "none"
        raise ConfigurationError(
            f"it has no kernel of {os_id}:{os_version} for {architecture}; it has distributions: {known}"
        )
    return found


def _lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if words and not is_kernel_version(words):
            raise ConfigurationError(f"line {number}: {words[:64]!r} is not a kernel release, as uname -r prints it")
        if words:
            yield words


def _crawled(document: dict[str, Any], os_id: str, os_version: str, architecture: str) -> Iterator[str]:
    for entry in _entries(document):
        if _is_of(str(entry.get("target", "")), os_id, os_version):
            for release in _releases(entry, architecture):
                if is_kernel_version(release) and _is_of_major(release, os_id, os_version):
                    yield release


def _entries(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for entries in document.values():
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                yield entry


def _is_of(target: str, os_id: str, os_version: str) -> bool:
    wanted = _TARGETS.get(os_id, os_id)
    if os_id == "amzn" and os_version.isdecimal():
        wanted += os_version
    return target == wanted or (os_id == "ubuntu" and target.startswith("ubuntu-"))


def _is_of_major(release: str, os_id: str, os_version: str) -> bool:
    """Return whether a release is of the same major version, where it says so: ``.el9_4``, ``.fc40``."""
    major = os_version.partition(".")[0]
    mark = "el" if os_id in _ENTERPRISE else "fc" if os_id == "fedora" else ""
    return not mark or not major or re.search(rf"\.{mark}{re.escape(major)}(?![0-9])", release) is not None


def _releases(entry: dict[str, Any], architecture: str) -> Iterator[str]:
    headers = entry.get("headers")
    urls = [url for url in headers if isinstance(url, str)] if isinstance(headers, list) else []
    packages = [found for url in urls if (found := _DEB.search(url))]
    for found in packages:
        # What all flavours share is of the architecture `all`, or says `common`.
        if found["architecture"] == architecture and "-common" not in found["release"]:
            yield found["release"]
    release = entry.get("kernelrelease")
    if not packages and isinstance(release, str):
        others = [word for name, word in _ARCHITECTURES.items() if name != architecture]
        if not release.endswith(tuple(f".{word}" for word in others)):
            yield release


def _sorted(releases: Iterable[str]) -> tuple[str, ...]:
    def order(release: str) -> list[tuple[int, str]]:
        return [(int(word), "") if word.isdecimal() else (-1, word) for word in _NUMBERS.findall(release)]

    return tuple(sorted(set(releases), key=order))
