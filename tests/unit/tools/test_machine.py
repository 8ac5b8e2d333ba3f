"""tools/machine: what it refuses before anything is made, and which Debian archive its tree comes from.

The programs that it asks are scripts here. Real trees: tests/engine/test_machine.py.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REAL = ("bash", "basename", "cat", "dirname", "env", "grep", "mkdir", "mktemp", "rm", "sed", "sort", "tr")
GOOD = {
    "uname": "echo Linux x86_64",
    "id": "echo 0",
    "awk": "echo 4294967295",
    "stat": "echo ext2/ext3",
    "debootstrap": "exit 1",
    "unshare": "exit 0",
}
"""A machine on which a tree can be made."""

NOTHING: Mapping[str, str] = {}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: a cache with a long one is refused."""
    with tempfile.TemporaryDirectory(prefix="dw", dir="/tmp") as name:
        yield Path(name)


def make_programs(place: Path, programs: Mapping[str, str]) -> None:
    """Fill a folder of programs, the tools that every system has among them."""
    place.mkdir()
    for name in REAL:
        (place / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name}"))
    for name, body in programs.items():
        (place / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / name).chmod(0o755)


def run_machine(
    folder: Path,
    programs: Mapping[str, str],
    *,
    arguments: tuple[str, ...] = ("--suite", "bookworm", "true"),
    environment: Mapping[str, str] = NOTHING,
) -> subprocess.CompletedProcess[str]:
    """Run tools/machine where the programs are these; what stands for ``debootstrap`` makes no tree."""
    place = folder / "bin"
    make_programs(place, programs)
    keyring = folder / "keyring.gpg"
    keyring.touch()
    return subprocess.run(
        [str(place / "bash"), str(ROOT / "tools/machine"), *arguments],
        env={
            "PATH": str(place),
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "c"),
            "DRIVERWRIGHT_DEBIAN_KEYRING": str(keyring),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        pytest.param({**GOOD, "uname": "echo Darwin arm64"}, "this machine is Darwin arm64", id="not Linux"),
        pytest.param({**GOOD, "uname": "echo Linux aarch64"}, "on Linux on x86_64 only", id="another architecture"),
        pytest.param({**GOOD, "id": "echo 1000"}, "run it with sudo or in a root shell", id="not root"),
        pytest.param({**GOOD, "awk": "echo 65536"}, "a rootless container?", id="user namespace"),
        pytest.param({**GOOD, "stat": "echo v9fs"}, "clone it on a Linux disk", id="disk of Windows"),
        pytest.param({**GOOD, "unshare": "exit 1"}, "run it with --privileged", id="no namespaces"),
        pytest.param({**GOOD, "unshare": "exit 11"}, "run it with --privileged", id="no mounts"),
        pytest.param({**GOOD, "unshare": "exit 12"}, "overlays cannot be mounted", id="cache on an overlay"),
        pytest.param({**GOOD, "unshare": "exit 13"}, "is mounted nodev", id="nodev"),
        pytest.param({**GOOD, "unshare": "exit 14"}, "is mounted noexec", id="noexec"),
    ],
)
def test_what_is_missing_is_one_line_with_what_to_do(folder: Path, programs: dict[str, str], said: str) -> None:
    """Exit status 2, one line, and no tree was begun."""
    done = run_machine(folder, programs)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("machine: ")
    assert said in done.stderr
    assert [*folder.glob("c/driverwright/machine/*")] == [*folder.glob("c/driverwright/machine/.*")] == []


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        pytest.param(
            {"DRIVERWRIGHT_DEBIAN_KEYRING": "/no/such.gpg"}, "the keys of Debian's archive, /no/such.gpg", id="no keys"
        ),
        pytest.param({"XDG_CACHE_HOME": f"/no/{'x' * 60}"}, "has more than 50 characters", id="a long name"),
        pytest.param({"DRIVERWRIGHT_DEBIAN_ARCHIVE": "ftp.example"}, 'it takes "URI [SECURITY-URI]"', id="no URI"),
    ],
)
def test_settings_that_cannot_work_are_refused(folder: Path, environment: dict[str, str], said: str) -> None:
    """Exit status 2, and the line names the value and what would be right."""
    extra = {"flock": "", "sha256sum": "echo 0123456789abcdef", "date": "echo 2026-48"}
    done = run_machine(folder, GOOD | extra, environment=environment)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--suite", "Bookworm; rm", "true"), id="suite"),
        pytest.param(("--packages", "a;b", "true"), id="packages"),
        pytest.param(("--sweet", "true"), id="unknown option"),
        pytest.param((), id="no command"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    """Nothing that is not a name reaches debootstrap or apt."""
    assert run_machine(folder, GOOD, arguments=arguments).returncode == 2


ONE_LINE = """\
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian/ trixie main contrib
# deb http://other.example/debian trixie main
deb-src http://source.example/debian trixie main
deb http://security.example/debian-security/ trixie-security main
deb https://docker.example/linux/debian trixie stable
"""
DEB822 = """\
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
"""
UBUNTU = "deb http://archive.example/ubuntu noble main universe\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "sources.list",
            ONE_LINE,
            ["trixie http://mirror.example/debian/", "trixie-security http://security.example/debian-security/"],
            id="one line each",
        ),
        pytest.param(
            "sources.list.d/debian.sources",
            DEB822,
            [
                "bookworm http://mirror.example/debian",
                "bookworm-security http://security.example/debian-security",
            ],
            id="deb822",
        ),
        pytest.param("sources.list", UBUNTU, [], id="not Debian"),
        pytest.param("sources.list.d/none.list", "", [], id="nothing"),
    ],
)
def test_the_machines_own_archives_are_found(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    """Sources of Debian's suites with the component main; third parties' and other distributions' are passed over."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert sorted(sourced("archives_of_sources", str(tmp_path))) == sorted(expected)


@pytest.mark.parametrize(
    ("suite", "lines"),
    [
        pytest.param("bookworm", ["M bookworm main", "M bookworm-updates main", "S bookworm-security main"], id="old"),
        pytest.param("sid", ["M sid main"], id="sid has neither updates nor security"),
    ],
)
def test_the_sources_of_a_suite(suite: str, lines: list[str]) -> None:
    """The suite with what Debian keeps for it, signed by Debian's keys."""
    text = sourced(f"suite={suite}; sources_text", "M", "S")
    assert [
        line.replace("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ", "") for line in text
    ] == lines


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        pytest.param("apt-get", "apt-get update && apt-get install debian-archive-keyring", id="Debian, Ubuntu"),
        pytest.param("dnf", "dnf install debian-keyring", id="Fedora"),
        pytest.param("zypper", "zypper install debian-archive-keyring", id="openSUSE"),
        pytest.param("pacman", "pacman -S debian-archive-keyring", id="Arch"),
        pytest.param("apk", "install it with the package manager of this system", id="another system"),
    ],
)
def test_the_line_that_installs_what_is_missing(tmp_path: Path, manager: str, line: str) -> None:
    """The line of the package manager that this machine has, with its name of the package."""
    make_programs(tmp_path / "bin", {manager: ""})
    assert sourced("how_to_install", "debian-archive-keyring", path=str(tmp_path / "bin")) == [line]


def sourced(function: str, *arguments: str, path: str = os.environ["PATH"]) -> list[str]:
    """Call a function of archive.sh or checks.sh; return the lines that it prints."""
    script = f'set -euo pipefail; . "$1/archive.sh"; . "$1/checks.sh"; shift; {function} "$@"'
    return subprocess.run(
        [shutil.which("bash") or "bash", "-c", script, "-", str(ROOT / "tools/tree"), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
