"""What ``make test`` and the slices of the long tests run, and what is printed of the time that it took."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tools import run_tests, slices

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
    """None is left out, and none is run twice, but for tests that slices take out of files by their marker."""
    parts = [part for stage in run_tests.stages(long=long) for part in stage if part.name not in slices.MARKERS]
    counts = Counter(file for part in parts for file in files_of(part))
    assert counts == Counter(run_tests.ROOT.joinpath("tests").rglob("test_*.py"))


def test_tests_with_a_newer_engine_are_run_by_slices_of_their_own() -> None:
    """The other slices leave them out, and these take their files without what another slice names."""
    parts = {part.name: part for stage in run_tests.stages(long=True) for part in stage}
    chosen = {name: part.arguments[part.arguments.index("-m") + 1] for name, part in parts.items()}
    assert {name for name, words in chosen.items() if words == "(long) and new_engine"} == set(slices.MARKERS)
    others = {words for name, words in chosen.items() if name not in slices.MARKERS}
    assert others == {"(long) and not new_engine", "(long or costly) and not new_engine"}
    by_name = {name: {file.name for file in files_of(parts[name])} for name in slices.MARKERS}
    assert by_name["new-buildah"] == {"test_job_builder.py"}
    assert "test_docker_builder.py" in by_name["new-engines"]


def test_each_slice_has_its_turn_as_the_branch_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit's is the next slice; a merge counts as one."""
    monkeypatch.setattr(slices, "ROOT", tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    turns = []
    for _ in range(len(slices.SLICES) + 1):
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=one"], check=True)
        turns.append(slices.due())
    assert sorted(turns[:-1]) == sorted(slices.SLICES)
    assert turns[0] == turns[-1]


def test_without_history_the_day_says_whose_turn_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source archive has no commits to count."""
    monkeypatch.setattr(slices, "ROOT", tmp_path)
    days = range(len(slices.SLICES))
    turns = []
    for day in days:
        monkeypatch.setattr(time, "time", lambda day=day: day * 86_400.0)
        turns.append(slices.due())
    assert turns == list(slices.SLICES)


def test_whose_turn_it_is_counts_for_one_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others ask nobody for the number of commits."""
    turns = ["waves"]
    monkeypatch.setattr(slices, "due", turns.pop)
    for command in ("unit", "test", "test-long"):
        assert run_tests.chosen(command, None)
    assert run_tests.chosen("test-slice", next(iter(slices.SLICES)))
    assert turns == ["waves"]
    ((part, _),) = run_tests.chosen("test-slice", None)
    assert (part.name, turns) == ("waves", [])


def test_the_build_of_kubernetes_comes_before_the_others_and_unit_tests_after_them() -> None:
    """What a fresh machine takes longest for is not held up by what all others wait for at the end."""
    (parts,) = run_tests.stages(long=False)
    unit = {part.name: part.niceness for part in parts if part.niceness}
    assert (run_tests.KUBERNETES.niceness, unit) == (run_tests.BEFORE, {"unit": run_tests.AFTER})
    assert run_tests.BEFORE < 0 < run_tests.AFTER


def test_the_rules_of_a_newer_kubernetes_are_built_when_nothing_else_runs() -> None:
    """Beside the parts of ``make test``, not before them; slices ask for none of these."""
    ((*_, last),) = run_tests.chosen("test", None)
    assert last == run_tests.NEWER_KUBERNETES
    assert last.niceness > run_tests.AFTER
    assert all(run_tests.NEWER_KUBERNETES not in stage for stage in run_tests.chosen("test-slice", "waves"))


def test_a_nice_value_is_that_of_the_process_and_of_its_session() -> None:
    """Where the kernel groups by session, that of the process alone changes nothing."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        run_tests.renice(process.pid, run_tests.AFTER)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == run_tests.AFTER
        group = Path(f"/proc/{process.pid}/autogroup")
        assert not group.exists() or group.read_text().endswith(f" nice {run_tests.AFTER}\n")
        process.communicate(b"\n")


def test_a_second_run_in_a_checkout_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would remove the results of the first one, which goes on; afterwards there is room for the next."""
    monkeypatch.setattr(run_tests, "LOCK", tmp_path / "build/tests.lock")
    monkeypatch.setattr(run_tests, "run", lambda *_: 0)
    monkeypatch.setattr(sys, "argv", ["run_tests", "--test-slice"])
    with run_tests.locked() as is_alone:
        assert is_alone
        assert run_tests.main() == 2
    assert "make test-slice: another run is at work in" in capsys.readouterr().err
    assert run_tests.main() == 0
