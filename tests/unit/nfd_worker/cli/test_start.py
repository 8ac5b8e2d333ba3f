"""The process: it ends with the status of its command, and everything it said has arrived."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        pytest.param(["scan", "--root", "{root}", "--sources", "fake"], 0, id="a command"),
        pytest.param(["--oneshot", "--no-publish", "--root", "{root}", "--feature-sources", "fake"], 0, id="run"),
        pytest.param(["--oneshot"], 2, id="a setting is missing"),
        pytest.param(["--nothing"], 2, id="wrong usage"),
        pytest.param(["--version"], 0, id="version"),
    ],
)
def test_the_exit_status_is_that_of_the_command(tmp_path: Path, arguments: list[str], status: int) -> None:
    """Also in a pipe, whose end is told that nothing more comes."""
    command = [sys.executable, "-m", "nfd_worker", *(word.format(root=tmp_path) for word in arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "NODE_NAME"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    assert bool(done.stdout) == (arguments[0] in ("scan", "--version"))


def test_a_reader_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """What could not be said was not said."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "nfd_worker", "scan", "--root", str(tmp_path), "--sources", "fake"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    os.close(writer)
    assert done.returncode != 0
    assert "BrokenPipeError" in done.stderr
