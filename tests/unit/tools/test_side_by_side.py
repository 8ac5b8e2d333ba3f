"""Tests in several processes are reported as pytest reports them in one."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = [pytest.mark.long]

ROOT = Path(__file__).parents[3]

OF_ALL_KINDS = """
import os
from pathlib import Path
import pytest

@pytest.fixture
def broken():
    yield
    raise ValueError("torn down")

@pytest.mark.parametrize("number", range(40))
def test_passes(number, tmp_path):
    tmp_path.joinpath("own").write_text("")
    assert len(list(tmp_path.iterdir())) == 1

def test_fails():
    print("printed", os.getpid())
    assert "\\ud800" == "a"

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass

def test_does_not_end_well(broken):
    pass
"""
BROKEN = """
raise RuntimeError("cannot be imported")
"""
DIES = """
import os, signal

def test_passes():
    pass

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(
    folder: Path, tests: str, *options: str, broken: str = "", named: str = ""
) -> tuple[int, str, dict[str, list[str]]]:
    """Run tests with the plugin; gives the exit status, the output, and of each test in the JUnit file what it has."""
    folder.joinpath("test_it.py").write_text(tests)
    if broken:
        folder.joinpath("test_other.py").write_text(broken)
    results = folder / "results.xml"
    plugins = ("-p", "tests.side_by_side", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    settings = (f"--rootdir={folder}", "-c", "/dev/null", f"--basetemp={folder / 'made'}", f"--junitxml={results}")
    argv = [sys.executable, "-m", "pytest", "-q", *plugins, *settings, *options, f"{folder}{named}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    cases = ElementTree.parse(results).iter("testcase") if results.exists() else ()  # noqa: S314 - made above
    return (
        done.returncode,
        done.stdout + done.stderr,
        {case.get("name", ""): [part.tag for part in case] for case in cases},
    )


def test_each_test_is_reported_once(tmp_path: Path) -> None:
    """With what it printed, in the one summary and the one JUnit file; the exit status says that some failed."""
    status, output, cases = run(tmp_path, OF_ALL_KINDS)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 41 passed, 1 skipped, 1 error" in output
    assert output.count("printed ") == 1
    assert cases == {f"test_passes[{number}]": [] for number in range(40)} | {
        "test_fails": ["failure"],
        "test_is_skipped": ["skipped"],
        "test_does_not_end_well": ["error"],
    }


def test_a_process_that_dies_fails_the_run(tmp_path: Path) -> None:
    """The test is named."""
    status, output, _ = run(tmp_path, DIES)
    assert status == pytest.ExitCode.INTERNAL_ERROR
    assert "a process failed at test_it.py::test_dies" in output


def test_a_file_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    """It is reported as an error, and the tests of other files are run."""
    status, output, cases = run(tmp_path, OF_ALL_KINDS, "-k", "passes", broken=BROKEN)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "cannot be imported" in output
    assert "40 passed, 3 deselected, 1 error" in output
    assert len(cases) == 41


def test_where_nothing_is_selected_nothing_is_run(tmp_path: Path) -> None:
    """As pytest says it."""
    status, output, _ = run(tmp_path, OF_ALL_KINDS, "-k", "another")
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "43 deselected" in output


def test_a_run_ends_with_its_first_failure(tmp_path: Path) -> None:
    """Where that is asked for; what no process has begun stays undone."""
    status, output, _ = run(tmp_path, OF_ALL_KINDS, "-x", "-k", "fails or ends")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in output


@pytest.mark.parametrize(
    ("option", "named", "expected"),
    [
        pytest.param("-v", "/test_it.py::test_passes", "40 passed", id="tests by name"),
        pytest.param("--collect-only", "", "43 tests collected", id="only collected"),
    ],
)
def test_what_one_process_does_is_left_to_pytest(tmp_path: Path, option: str, named: str, expected: str) -> None:
    """Tests that are named, and a collection."""
    status, output, _ = run(tmp_path, OF_ALL_KINDS, option, named=named)
    assert status == pytest.ExitCode.OK
    assert expected in output


def test_what_starts_threads_is_imported_by_no_process_that_forks(tmp_path: Path) -> None:
    """Also where two files need it: a fork has none of the threads."""
    uses = """
import os
import helm_python

def test_it_answers():
    assert len(os.listdir(f"/proc/{os.getppid()}/task")) == 1
"""
    status, output, _ = run(tmp_path, uses, "--processes=2", broken=uses)
    assert status == pytest.ExitCode.OK, output
