"""What ``make test`` runs, and what it prints of the time that it took."""

from collections import Counter
from pathlib import Path

import pytest

from tools import run_tests

STAT = """\
cpu  20130 2194 3554 25470 197 11 59 33 700 0
cpu0 10065 1097 1777 12735 98 5 29 16 350 0
intr 8
"""


def test_processors_work_but_where_they_idle_wait_for_a_disk_or_are_not_ours() -> None:
    """What virtual machines took is in the first number already; a tick is a hundredth of a second."""
    assert run_tests.worked(STAT) == (20130 + 2194 + 3554 + 11 + 59) / 100


def files_of(part: run_tests.Part) -> set[Path]:
    """Return the files that a part's arguments name, without those that it ignores."""
    named = [run_tests.ROOT / word for word in part.arguments if word.startswith("tests/")]
    ignored = [run_tests.ROOT / word.removeprefix("--ignore=") for word in part.arguments if "--ignore=" in word]
    found = {file for path in named for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
    return {file for file in found if not any(file.is_relative_to(path) for path in ignored)}


@pytest.mark.parametrize("long", [False, True], ids=["make test", "make test-long"])
def test_each_file_is_run_by_one_part(long: bool) -> None:
    """None is left out, and none is run twice."""
    counts = Counter(file for stage in run_tests.stages(long=long) for part in stage for file in files_of(part))
    assert counts == Counter(run_tests.ROOT.joinpath("tests").rglob("test_*.py"))
