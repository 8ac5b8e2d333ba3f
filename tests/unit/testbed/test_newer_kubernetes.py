"""The rules of a newer Kubernetes: what is built when, and what serves when sid gives nothing. Nothing is compiled."""

import os
import time
from pathlib import Path

import pytest

from testbed import newer_kubernetes
from testbed.apt_sources import parse_simulation
from testbed.errors import ArchiveError, CommandError, OverdueError, TestbedError
from testbed.newer_kubernetes import (
    SOURCES,
    NewerKubernetes,
    NotBuiltError,
    ensure_newer_kubernetes,
    entry_name,
    of_the_build,
    release_of,
)
from testbed.progress import Silent

SIMULATION = """\
Reading package lists...
The following NEW packages will be installed:
  golang-1.27-go golang-any
Inst libc6 (2.43-7 Debian:unstable [amd64])
Inst golang-1.27-src (1.27.3-1 Debian:unstable [all])
Inst golang-1.27-go (1.27.3-1 Debian:unstable [amd64])
Inst golang-go (2:1.27~1 Debian:unstable [amd64])
Inst golang-golang-x-tools (1:0.52.0+ds-3 Debian:unstable [amd64]) []
Inst golang-k8s-api-dev (0.36.4-1 Debian:unstable [all])
Inst libnss3-dev (2:3.132-1 Debian:unstable [amd64])
Conf golang-k8s-api-dev (0.36.4-1 Debian:unstable [all])
"""
POLICY = "{}:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n     {} 500\n"


class Apt:
    """Knows the versions of the two packages."""

    def __init__(self, *versions: str) -> None:
        self._known = dict(zip(SOURCES, versions, strict=False))

    def cache(self, *arguments: str) -> str:
        """Answer ``policy``."""
        assert arguments == ("policy", *SOURCES)
        return "".join(POLICY.format(name, version, version) for name, version in self._known.items())


class Machine:
    """A machine on which builds succeed or fail, and an archive that changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self.apt: Apt | TestbedError = Apt("0.36.4-1", "0.36.4-2")
        self.fault: TestbedError | None = None
        self.builds = 0
        self.cache = cache
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        monkeypatch.setattr(newer_kubernetes, "require_supported_machine", lambda: None)
        monkeypatch.setattr(newer_kubernetes, "refreshed_apt", self._refreshed)
        monkeypatch.setattr(newer_kubernetes, "_build", self._build)

    def _refreshed(self, codename: str) -> Apt:
        assert codename == "sid"
        if isinstance(self.apt, TestbedError):
            raise self.apt
        return self.apt

    def _build(self, _apt: Apt, versions: dict[str, str], folder: Path, _step: object) -> None:
        self.builds += 1
        if self.fault:
            raise self.fault
        (folder / "packages").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))

    def found(self) -> str:
        """Return the release of what is there."""
        return ensure_newer_kubernetes(Silent()).release


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without a cache."""
    return Machine(monkeypatch, tmp_path)


DOES_NOT_COMPILE = CommandError(["go", "build"], "ended with status 1", "undefined: x")
AWAY = ArchiveError("nothing answers", hint="later", unreachable=True)


def test_they_are_built_once_for_the_versions_that_sid_has(machine: Machine) -> None:
    """A new version is another entry; the last two stay."""
    assert [machine.found(), machine.found(), machine.builds] == ["1.36.4", "1.36.4", 1]
    for number in ("0.37.0-1", "0.37.1-1"):
        machine.apt = Apt(number, number)
        machine.found()
    assert machine.builds == 3
    kept = [path.name.partition("_")[0] for path in (machine.cache / "driverwright/newer-kubernetes").glob("[!.]*")]
    assert sorted(kept) == ["0.37.0-1", "0.37.1-1"]


def test_what_does_not_build_is_not_tried_again_at_once(machine: Machine) -> None:
    """Else each run would compile for minutes to be told the same; a day later it may have been the machine."""
    machine.fault = DOES_NOT_COMPILE
    for _ in range(2):
        with pytest.raises(NotBuiltError, match="undefined: x"):
            machine.found()
    assert machine.builds == 1
    (failed,) = (machine.cache / "driverwright/newer-kubernetes").glob(".failed-*")
    yesterday = time.time() - 90_000
    os.utime(failed, (yesterday, yesterday))
    machine.fault = None
    assert (machine.found(), machine.builds, failed.exists()) == ("1.36.4", 2, False)


def test_what_did_not_end_in_time_is_tried_again_at_once(machine: Machine) -> None:
    """The machine was busy; the packages may build."""
    machine.fault = OverdueError(["apt-get", "--simulate"], 600, "")
    with pytest.raises(NotBuiltError, match="did not end within 600 s"):
        machine.found()
    machine.fault = None
    assert (machine.found(), machine.builds) == ("1.36.4", 2)


@pytest.mark.parametrize(
    ("apt", "fault"),
    [
        pytest.param(Apt("0.38.0-1", "0.38.0-1"), DOES_NOT_COMPILE, id="does not build"),
        pytest.param(Apt("0.38.0-1"), None, id="one package is gone"),
        pytest.param(Apt(), None, id="no package"),
        pytest.param(AWAY, None, id="no archive"),
        pytest.param(Apt("0.38.0-1", "0.38.0-1"), AWAY, id="no package's file"),
    ],
)
def test_what_was_built_before_serves(
    machine: Machine, apt: Apt | TestbedError, fault: TestbedError | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with the reason; a machine without it is told the reason."""
    machine.apt, machine.fault = apt, fault
    with pytest.raises(NotBuiltError, match="sid"):
        machine.found()
    machine.apt, machine.fault = Apt("0.36.4-1", "0.36.4-2"), None
    machine.found()
    machine.apt, machine.fault = apt, fault
    capsys.readouterr()
    assert machine.found() == "1.36.4"
    assert "those that were built before, 0.36.4-1_0.36.4-2_" in capsys.readouterr().err


def test_an_archive_that_is_away_is_asked_again_by_the_next_run(machine: Machine) -> None:
    """That a file is missing says nothing of whether the sources compile."""
    machine.fault = AWAY
    with pytest.raises(NotBuiltError):
        machine.found()
    machine.fault = None
    assert machine.found() == "1.36.4"


def test_go_and_its_libraries_are_what_a_build_reads() -> None:
    """Not what they depend on for programs in C."""
    found = parse_simulation(SIMULATION)
    assert found["golang-golang-x-tools"] == "1:0.52.0+ds-3"
    assert of_the_build(found) == ["golang-1.27-go", "golang-1.27-src", "golang-k8s-api-dev"]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        pytest.param("0.36.4-1", "1.36.4", id="plain"),
        pytest.param("1:0.37.0~rc1-2", "1.37.0", id="epoch and candidate"),
        pytest.param("2026.1", "2026.1", id="another numbering is left as it is"),
    ],
)
def test_libraries_have_the_numbers_of_kubernetes(version: str, release: str) -> None:
    """With 0 in place of 1."""
    assert release_of(version) == release


def test_how_they_are_built_is_part_of_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another program of ours is another entry."""
    versions = dict.fromkeys(SOURCES, "0.36.4-1")
    before = entry_name(versions)
    (tmp_path / "other.go").write_text("package main\n")
    monkeypatch.setattr(newer_kubernetes, "_JUDGE_SOURCE", tmp_path / "other.go")
    assert entry_name(versions) != before


def test_what_was_found_is_named(tmp_path: Path) -> None:
    """Release, packages and compiler."""
    (tmp_path / "packages").write_text(f"{SOURCES[0]} 0.36.4-1\n{SOURCES[1]} 0.36.4-2\ngolang-1.27-go 1.27.3-1\n")
    named = f"Kubernetes 1.36.4 ({SOURCES[0]} 0.36.4-1, {SOURCES[1]} 0.36.4-2, golang-1.27-go 1.27.3-1)"
    assert str(NewerKubernetes(tmp_path)) == named
