"""Command line: commands, exit statuses, messages."""

import json
from pathlib import Path

import pytest

from nfd_worker.cli import build_parser, run, with_command
from nfd_worker.config import OPTIONS
from tests.unit.nfd_worker.trees import HOSTS

INTEL = str(HOSTS / "intel-gpu-server")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["run"]),
        (["--oneshot"], ["run", "--oneshot"]),
        (["run", "--port", "0"], ["run", "--port", "0"]),
        (["scan"], ["scan"]),
        (["--version"], ["--version"]),
        (["--help"], ["--help"]),
    ],
)
def test_run_is_the_command_when_none_is_given(arguments: list[str], expected: list[str]) -> None:
    """Upstream's worker has no commands."""
    assert with_command(arguments) == expected


def test_scan_shows_a_recorded_host(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of this machine is in it."""
    assert run(["scan", "--root", INTEL, "-o", "json"], {}) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert labels["feature.node.kubernetes.io/kernel-version.full"] == "6.8.0-45-generic"


def test_scan_can_look_at_some_sources_only(capsys: pytest.CaptureFixture[str]) -> None:
    """``--sources`` wins over the configuration file."""
    assert run(["scan", "--root", INTEL, "--sources", "pci"], {"NFD_WORKER_LABEL_SOURCES": "cpu"}) == 0
    assert capsys.readouterr().out.splitlines()[0] == "pci"


def test_scan_of_a_host_that_cannot_be_read_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, and what could be found is still shown."""
    assert run(["scan", "--root", str(tmp_path)], {}) == 1
    assert "FAILED kernel: cannot read" in capsys.readouterr().out


def test_wrong_configuration_is_status_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback for a mistake of the operator."""
    assert run(["scan", "--config", "/nonexistent"], {}) == 2
    assert capsys.readouterr().err == "nfd-worker: there is no configuration file /nonexistent\n"


def test_publishing_needs_the_name_of_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names all ways out."""
    assert run(["run", "--oneshot"], {}) == 2
    assert "set --node-name or NODE_NAME, or use --no-publish" in capsys.readouterr().err


def test_one_cycle_without_publishing_is_success() -> None:
    """Nothing is asked of a cluster."""
    assert run(["run", "--oneshot", "--no-publish", "--root", INTEL], {}) == 0


def test_oneshot_that_cannot_publish_is_status_1(tmp_path: Path) -> None:
    """A Job tries again by its own rules."""
    arguments = ["--oneshot", "--node-name", "n", "--root", INTEL, "--kubeconfig", str(tmp_path / "none")]
    assert run(arguments, {}) == 1


def test_unknown_flags_are_status_2() -> None:
    """As argparse does."""
    with pytest.raises(SystemExit, match="2"):
        run(["scan", "--colour"], {})


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else is done."""
    with pytest.raises(SystemExit, match="0"):
        run(["--version"], {})
    assert capsys.readouterr().out.startswith("nfd-worker 0.")


def test_help_names_every_flag_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has to read the source."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "--help"])
    text = capsys.readouterr().out
    assert all(f"--{option.flag}" in text and option.environment in text for option in OPTIONS)
