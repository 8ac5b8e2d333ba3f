"""A ``dkms.conf`` that cannot be built says what is wrong with it, or that the kernel is not one of its own."""

import subprocess
from pathlib import Path

import pytest

from tests.support.driver_builder.resolver import shell_commands
from tests.unit.driver_builder.builds.templates.test_debian_template import dockerfile

KERNEL = "6.1.0-56-cloud-amd64"
CONFIG = "CONFIG_PCI=y\nCONFIG_USB=m\n# CONFIG_DRM is not set\n"
DKMS = 'dkms() { echo "dkms $1"; [ "$1" != "$FAILS" ] || return "$CODE"; [ "$1" = add ] || exit 0; }; '
"""Ends one of its actions with a code; nothing is built."""


def built(tmp_path: Path, conf: str, *, fails: str = "", code: int = 8) -> tuple[int, str]:
    """Run the command that compiles; returns its exit code and the last line that it printed."""
    (tmp_path / "dkms.conf").write_bytes(conf.encode())
    (tmp_path / ".config").write_text(CONFIG)
    (tmp_path / "tree/edu/1").mkdir(parents=True)
    commands = shell_commands(dockerfile(kernel=KERNEL), "dkms add")
    for place, moved in (("/source", ""), ("/var/lib/dkms", "tree"), (f"/usr/src/linux-headers-{KERNEL}", "")):
        commands = commands.replace(place, str(tmp_path / moved))
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", DKMS + commands],
        env={"PATH": "/usr/bin:/bin", "FAILS": fails, "CODE": str(code)},
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
    assert built(tmp_path, conf, fails="add" if refuses else "") == (
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
    assert built(tmp_path, f"PACKAGE_VERSION={version}\n") == (0, "dkms build")


@pytest.mark.parametrize(
    "conf",
    [
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MIN="6.14"', id="older than the first kernel"),
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MAX="6.1"', id="a release of the first one that is too new"),
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MAX="5.19"', id="newer than the last kernel"),
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MIN="7.0"\nBUILD_EXCLUSIVE_KERNEL_MAX="5.0"', id="no kernel at all"),
        pytest.param('BUILD_EXCLUSIVE_CONFIG="CONFIG_PCI CONFIG_DRM"', id="an option that the kernel has not"),
        pytest.param('BUILD_EXCLUSIVE_CONFIG="!CONFIG_USB"', id="an option that the kernel has"),
        pytest.param('[ "$kernelver" = 6 ] || BUILD_EXCLUSIVE_KERNEL_MIN="6.14"', id="computed"),
    ],
)
def test_a_kernel_that_the_author_excludes_is_not_built_for(tmp_path: Path, conf: str) -> None:
    """However old dkms is: not every release of it looks at these."""
    wanted = conf[conf.index("BUILD_") :].replace("\n", " ")
    assert built(tmp_path, f"PACKAGE_VERSION=1\n{conf}\n") == (
        69,
        f"driverwright: driverwright/edu 1.0.0 is not for {KERNEL}, says its dkms.conf: {wanted}",
    )


@pytest.mark.parametrize(
    "conf",
    [
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MIN="6.1"', id="a release of the first kernel"),
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MIN="5.15"\nBUILD_EXCLUSIVE_KERNEL_MAX="6.2"', id="between two"),
        pytest.param('BUILD_EXCLUSIVE_KERNEL_MAX="6.10"', id="by number, not by letter"),
        pytest.param('BUILD_EXCLUSIVE_CONFIG="CONFIG_PCI CONFIG_USB !CONFIG_DRM !CONFIG_US"', id="options"),
    ],
)
def test_a_kernel_that_the_author_names_is_built_for(tmp_path: Path, conf: str) -> None:
    """The limits are those of dkms: from the first one on, and below all releases of the last one."""
    assert built(tmp_path, f"PACKAGE_VERSION=1\n{conf}\n") == (0, "dkms build")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        pytest.param('OBSOLETE_BY="6.1"', 'OBSOLETE_BY="6.1"', id="the kernel has the driver itself"),
        pytest.param(". ./limits", "", id="in another file"),
    ],
)
def test_a_reason_of_a_newer_dkms_is_said_where_the_conf_names_it(tmp_path: Path, line: str, wanted: str) -> None:
    """OBSOLETE_BY is a limit for dkms 3.2; what is not in the file does not end the build without a word."""
    assert built(tmp_path, f"PACKAGE_VERSION=1\n{line}\n", fails="build", code=77) == (
        69,
        f"driverwright: driverwright/edu 1.0.0 is not for {KERNEL}, says its dkms.conf: {wanted}",
    )


def test_dkms_does_not_wait_for_other_drivers(tmp_path: Path) -> None:
    """Its list of what must be installed before is empty when it reads the file, also where the last line is open."""
    built(tmp_path, 'PACKAGE_VERSION=1\nBUILD_DEPENDS[0]="other"')
    script = f'. {tmp_path}/dkms.conf; echo "$PACKAGE_VERSION ${{BUILD_DEPENDS[*]}}"'
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == "1 \n"


@pytest.mark.parametrize("code", [pytest.param(9, id="old"), pytest.param(77, id="new")])
def test_dkms_itself_says_that_a_kernel_is_excluded(tmp_path: Path, code: int) -> None:
    """By another code in older releases."""
    conf = 'PACKAGE_VERSION=1\nBUILD_EXCLUSIVE_KERNEL="^5"\n'
    ended, line = built(tmp_path, conf, fails="build", code=code)
    assert (ended, line.partition(": ")[2]) == (
        69, f'driverwright/edu 1.0.0 is not for {KERNEL}, says its dkms.conf: BUILD_EXCLUSIVE_KERNEL="^5"',
    )  # fmt: skip
