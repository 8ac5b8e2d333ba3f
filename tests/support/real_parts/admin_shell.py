"""Somebody who follows the documentation: its commands, read from the pages, in a shell in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATIENCE = 1800
"""Seconds for a command: emulated nodes take their time."""

_BLOCK = re.compile(r"^( *)```(?:sh)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"`((?:kubectl|helm|nfd-worker) [^`]+)`|^ +((?:kubectl|helm) .+)$", re.MULTILINE)


def section(page: str, heading: str) -> str:
    """Return what a page says below a heading, up to the next one of its kind."""
    text = (ROOT / page).read_text()
    return text.partition(f"\n{heading}\n")[2].partition(f"\n{heading.partition(' ')[0]} ")[0]


def blocks(text: str) -> list[str]:
    """Return the shell blocks of a section."""
    return [textwrap.dedent(block) for _, block in _BLOCK.findall(text)]


def commands(text: str) -> list[str]:
    """Return the commands that stand in a section's text, in lines of their own or within one, in their order."""
    found = [inline or line for inline, line in _COMMAND.findall(text)]
    return [" ".join(command.split()) for command in found]


class Admin:
    """A shell in a copy of the repository, in which the virtual environment is made already.

    ``say`` is given each command that was run, with the seconds that it took.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.folder = folder
        self._say = say
        _copy_repository(folder)
        venv = folder / Path(sys.prefix).name
        _share_venv(venv)
        path = os.pathsep.join((str(venv / "bin"), environment["PATH"], os.environ["PATH"]))
        # The settings of a make that runs these tests are not for one that they run.
        own = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "PYTHONPATH"))}
        self._environment = {**own, **environment, "PATH": path}

    def run(self, script: str, *, at: str = ".") -> str:
        """Run commands one after the other, up to one that fails; returns what they printed."""
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder / at, env=self._environment, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self._say(f"{time.monotonic() - began:6.1f} s  $ " + script.strip().replace("\n", f"\n{' ' * 10}$ "))
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout[-4000:]}"
        return done.stdout

    def watch(self, command: str, is_seen: Callable[[str], bool]) -> None:
        """Run a command that watches, until a person who reads its lines has seen enough."""
        began, lines = time.monotonic(), list[str]()
        with subprocess.Popen(
            ["timeout", str(PATIENCE), "bash", "-c", f"exec {command}"],
            cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        ) as watching:  # fmt: skip
            assert watching.stdout is not None
            for line in watching.stdout:
                lines.append(line)
                if is_seen(line):
                    break
            watching.terminate()
        self._say(f"{time.monotonic() - began:6.1f} s  $ {command}\n" + "".join(lines).rstrip())
        assert lines, f"{command} printed nothing"
        assert is_seen(lines[-1]), f"not within {PATIENCE} s: {command}"


def _copy_repository(folder: Path) -> None:
    """Copy what git has of this tree, as somebody has it who clones it."""
    listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    names = subprocess.run(listing, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def _share_venv(venv: Path) -> None:
    """Give a copy the packages that these tests run with: `make` finds what it would install."""
    venv.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (venv / path.name).symlink_to(path)
    (venv / ".installed").touch()
