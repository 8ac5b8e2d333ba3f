"""A ``dkms.conf`` that cannot be built says what is wrong with it."""

import subprocess
from pathlib import Path

import pytest

from tests.support.driver_builder.resolver import shell_commands
from tests.unit.driver_builder.templates.test_debian_template import dockerfile

DKMS = 'dkms() { [ "$1" != add ] || [ -z "$REFUSES" ] || return 8; echo "dkms $1"; exit 0; }; '
"""Accepts what it is given, or not; nothing is built."""


def built(tmp_path: Path, conf: str, *, refuses: bool = False) -> tuple[int, str]:
    """Run the command that compiles; returns its exit code and the last line that it printed."""
    (tmp_path / "dkms.conf").write_bytes(conf.encode())
    script = DKMS + shell_commands(dockerfile(), "dkms add").replace("/source", str(tmp_path))
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": "/usr/bin:/bin", "REFUSES": "1" if refuses else ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("conf", "refuses", "words"),
    [
        pytest.param('PACKAGE_VERSION="1"\r\n', False, "has line ends of Windows (CR LF): save it with LF", id="CRLF"),
        pytest.param(
            "PACKAGE_NAME=edu\nPACKAGE_VERSION=#MODULE_VERSION#\n", False,
            "has a placeholder where PACKAGE_VERSION is, #MODULE_VERSION#: write the version itself", id="placeholder",
        ),
        pytest.param(
            'PACKAGE_VERSION="$(git describe --tags 2>/dev/null)"\n', True,
            "has dkms compute PACKAGE_VERSION, which fails in a build: write the version for "
            "$(git describe --tags 2>/dev/null)", id="computed",
        ),
        pytest.param("PACKAGE_VERSION=`cat VERSION`\n", True,
                     "has dkms compute PACKAGE_VERSION, which fails in a build: write the version for `cat VERSION`",
                     id="computed in the old form"),
        pytest.param('PACKAGE_VERSION="1"\n', True, "is not accepted by dkms", id="for another reason"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, conf: str, refuses: bool, words: str) -> None:
    """The source is at fault, not the compiler."""
    assert built(tmp_path, conf, refuses=refuses) == (
        68,
        f"driverwright: the dkms.conf of driverwright/edu 1.0.0 {words}",
    )


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("'1.2.3' # the newest", id="comment"),
        pytest.param('"$(cat VERSION)"', id="computed, and dkms accepts it"),
        pytest.param("__VERSION_STRING", id="word"),
    ],
)
def test_what_dkms_can_build_is_built(tmp_path: Path, version: str) -> None:
    """Nothing else is looked at."""
    assert built(tmp_path, f"PACKAGE_VERSION={version}\n") == (0, "dkms add")
