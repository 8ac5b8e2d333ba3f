"""The unit tests hold on other machines, under other settings, and in years to come."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.later import OF_TODAY
from tools.run_tests import ROOT, UNIT_ALONE

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

NOBODY = 65534
ELSEWHERE = {"LC_ALL": "C", "TZ": "<+0545>-5:45"}
"""The plainest locale, and Kathmandu's time, which is no whole number of hours from UTC."""
MOUNTED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def unit_tests(python: Path, days_ahead: int) -> list[str]:
    """Write the command of the unit tests, some days from now."""
    excepted = [word for test in OF_TODAY for word in ("--deselect", test)]
    later = ["-p", "tests.later", f"--days-ahead={days_ahead}", *excepted]
    return [str(python), "-m", "pytest", *UNIT_ALONE.arguments, *later, "-p", "no:cacheprovider"]


def passes(command: list[str], folder: Path, settings: Mapping[str, str]) -> None:
    """Run the unit tests in a folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **settings}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def copy() -> Iterator[Path]:
    """Copy the repository to a folder with a blank in its name, which belongs to nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    python = Path(sys.executable).resolve()
    if hidden := [str(path) for path in python.parents if not path.stat().st_mode & 0o001]:
        pytest.skip(f"another user may not run {python}: {hidden[0]} is closed to others")
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with TemporaryDirectory(dir="/var/tmp", prefix="dw-") as parent:
        folder = Path(parent) / "a folder"
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        (folder / ".venv").mkdir()
        subprocess.run(["chown", "--recursive", f"{NOBODY}:{NOBODY}", parent], check=True)
        yield folder


def test_for_another_user_elsewhere_in_another_locale(copy: Path) -> None:
    """Another user than root, a folder with a blank, locale C, Kathmandu's time, and next year's date."""
    mount = ["unshare", "--mount", "sh", "-c", MOUNTED, "sh", sys.prefix, str(copy / ".venv")]
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    passes([*mount, *become, *unit_tests(copy / ".venv/bin/python", 400)], copy, ELSEWHERE)


def test_in_eleven_years() -> None:
    """What a test takes for the future stays that; certificates and keys of tests do not expire."""
    passes(unit_tests(Path(sys.executable), 4000), ROOT, {})
