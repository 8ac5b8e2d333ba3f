"""Runs the command of a rendered template that looks for headers, with programs in place of the package managers.

The command's own folders are moved below a folder of the test. Every program notes how it was called and succeeds where
``works`` occurs in the call (for apt: in the name of a file of sources that is there by then).
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDERS = re.compile(r"""(?<=[\s"=<>])/(?=(?:usr/(?:src|local|lib/modules)|kernel|facts|etc|tmp|opt|lib/modules)\b)""")
_TRY = re.compile(r"^driverwright: looking for .*? in (.*)$", re.MULTILINE)
_PROGRAM = r"""#!/bin/bash
call="${0##*/} $*"
echo "$call" >>"$ROOT/calls"
found() {
    mkdir -p "$ROOT/usr/src/$1"
    printf '0x1\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n' >"$ROOT/usr/src/$1/Module.symvers"
    echo CONFIG_GCC_VERSION=120200 >"$ROOT/usr/src/$1/.config"
}
works() { [ -n "$WORKS" ] && [[ "$1" == *"$WORKS"* ]]; }
case "$call" in
gcc*dump*) echo 12 ;;
gcc*) echo "gcc (Test) 12.2.0" ;;
*fedora-repos-archive*) exit 0 ;;
curl*launchpad*) [ -n "$REACHABLE" ] && echo '{"date_published": "2024-07-11T12:15:12.345+00:00", "x": null}' ;;
curl*snapshot.debian.org*) [ -n "$REACHABLE" ] && cat <<END
{"binary": "x", "binary_version": "6.1.52-1", "fileinfo": {"00": [{"archive_name": "debian-security",
"first_seen": "20230909T031234Z", "name": "x.deb"}, {"archive_name": "debian", "first_seen": "20231007T083012Z"}]},
"result": [{"binary_version": "6.1.52-1"}, {"binary_version": "6.1.9-1"}]}
END
    ;;
curl*) [ -n "$REACHABLE" ] && exit 22 || exit 6 ;;
*makecache* | "apt-get update"* | "zypper --non-interactive refresh") [ -n "$REACHABLE" ] ;;
"zypper --non-interactive search"*)
    [ -n "$EDITIONS" ] || exit 104
    for edition in $EDITIONS; do echo "  | kernel-default-devel | package | $edition | x86_64 | x"; done ;;
zypper*" install "*) found "linux-${RELEASE%-*}-obj/x86_64/${RELEASE##*-}" ;;
zypper*) exit 0 ;;
apt-cache*) works "$(ls "$ROOT/etc/apt/sources.list.d")" ;;
"apt-get clean") exit 0 ;;
"apt-get indextargets"*) echo "jammy http://archive.example.com/debian/" ;;
apt-get*) found "linux-headers-$RELEASE" ;;
*) works "$call" && found "kernels/$RELEASE" ;;
esac
"""
_NAMES = ("amazon-linux-extras", "apt-cache", "apt-get", "curl", "dnf", "gcc", "rpm", "yum", "zypper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a search for headers ended: its exit code, what it printed, and the calls of the package manager."""

    exit_code: int
    output: str
    calls: tuple[str, ...]

    @property
    def places(self) -> list[str]:
        """Where it looked, in order."""
        return _TRY.findall(self.output)


def shell_commands(text: str, mark: str = "") -> str:
    """The RUN commands of a Dockerfile that hold a mark, one per line, without RUN and line ends."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "").splitlines()
    return "\n".join(line.removeprefix("RUN ") for line in joined if line.startswith("RUN ") and mark in line)


def look_for_headers(
    text: str, root: Path, *, release: str, works: str = "", reachable: bool = True, editions: Sequence[str] = ()
) -> Outcome:
    """Run the command below ``root``; ``editions`` are the package versions that zypper lists."""
    programs = root / "programs"
    for folder in (programs, root / "etc/yum.repos.d", root / "etc/apt/sources.list.d", root / "tmp", root / "usr/src"):
        folder.mkdir(parents=True)
    (root / "etc" / "os-release").write_text("VERSION_CODENAME=jammy\n")
    for name in _NAMES:
        (programs / name).write_text(_PROGRAM)
        (programs / name).chmod(0o755)
    command = _FOLDERS.sub(f"{root}/", shell_commands(text, "looking for"))
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ROOT": str(root),
        "RELEASE": release,
        "WORKS": works,
        "REACHABLE": "yes" if reachable else "",
        "EDITIONS": " ".join(editions),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    calls = (root / "calls").read_text().splitlines() if (root / "calls").exists() else []
    return Outcome(exit_code=done.returncode, output=done.stdout, calls=tuple(calls))
