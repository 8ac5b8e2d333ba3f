"""What builds of tests fetch from servers of a private CA, by a proxy with a password, and what must stay nowhere.

By curl as for headers, a git repository, an archive. Names of servers resolve at the proxy only.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driver_builder.model.build import SourceArchive, SourceGit
from driver_builder.model.build_proxy import ProxyPassword
from testbed.command import run
from testbed.pki import CertificateAuthority
from tests.support.real_parts.forward_proxy import ForwardProxy, forward_proxy
from tests.support.real_parts.web_server import served

IMAGE = "build-network/base:1"
PACKAGES = "bzip2 ca-certificates curl git zstd"
INSTALL = f"RUN apt-get update -q && apt-get install -q --yes --no-install-recommends {PACKAGES}"
TEMPLATE = """\
FROM {{ base_image }} AS headers
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN mkdir /facts; echo "{{ kernel_version }} SMP" >/facts/vermagic; echo gcc >/facts/compiler; \\
    url="{{ headers_mirror }}"; [ -z "$url" ] || curl -fsS -o /facts/Module.symvers "$url/symvers"

FROM headers AS build
{% include "parts/source.j2" %}
RUN mkdir -p /out/driver; cp /source/driver.c /out/driver/; env | cut -d = -f 1 >/out/driver/environment

FROM scratch
COPY --from=build /out/ /
"""
USER, PASSWORD = "builder", "p@ss/w0rd+of the proxy"


@dataclass(frozen=True, slots=True)
class Network:
    """What a build fetches, by which way, and whom it has to trust for it."""

    proxy: ForwardProxy
    direct: str
    """The URL of the server without a proxy."""
    ca: str
    git: SourceGit
    archive: SourceArchive


@contextmanager
def build_network(root: Path) -> Iterator[Network]:
    """Give a server with TLS, and a proxy before it, while the block runs."""
    authority = CertificateAuthority(root / "authority")
    hosts = [f"{name}.example.com" for name in ("git", "archive")]
    certificate = authority.issue_files("server", "server", hosts=["127.0.0.1", *hosts])
    tree = root / "served" / "driver"
    tree.mkdir(parents=True)
    (tree / "driver.c").write_text("int driver;\n")
    (root / "served" / "symvers").write_text("0x1\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n")
    archive = root / "served" / "driver.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, arcname="driver")
    git = ["git", "-C", str(tree), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"], ["update-server-info"]):
        run([*git, *words])
    commit = run([*git, "rev-parse", "HEAD"]).strip()
    with (
        served(root / "served", certificate=certificate) as direct,
        forward_proxy(direct, username=USER, password=PASSWORD) as proxy,
    ):
        yield Network(
            proxy=proxy,
            direct=direct,
            ca=authority.file.read_text(),
            git=SourceGit(url="https://git.example.com/driver/.git", commit=commit, path=""),
            archive=SourceArchive(
                url="https://archive.example.com/driver.tar",
                sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
                path="",
            ),
        )


def hidden_words(network: Network) -> list[str]:
    """Return what stands nowhere: the password in both forms, and each line of the certificates."""
    lines = [line for line in network.ca.splitlines() if re.fullmatch(r"[A-Za-z0-9+/=]{40,}", line)]
    assert lines
    return [PASSWORD, ProxyPassword(USER, PASSWORD).in_url, *lines]


def entries_with(path: Path, hidden: list[str]) -> list[str]:
    """Name the parts of a saved image that have any of these words."""
    found = []
    with tarfile.open(path) as image:
        for entry in image:
            content = file.read() if (file := image.extractfile(entry)) is not None else b""
            content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
            found += [entry.name for words in hidden if words.encode() in content]
    return found
