"""Run commands of the machine: the one subprocess wrapper of the testbed.

Only for commands that end by themselves. Whatever keeps running is started by the supervisor (`supervisor.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from testbed.errors import CommandError, OverdueError
from testbed.progress import Step

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

# The thread that calls waits for the command, so "die with the parent thread" means "die with the harness".
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for the machine's own tools: English messages, and sbin in the path."""
    env = dict(os.environ)
    env.update(LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive", PATH=f"{env.get('PATH', '/usr/bin:/bin')}:{_SBIN}")
    env.update(extra or {})
    return env


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float = 300,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    check: bool = True,
    hint: str = "",
) -> str:
    """Run a command and return what it printed (standard output and error together).

    Raises:
        CommandError: it ended with another status than 0.
        OverdueError: it did not end in time; what it started has ended with it.
    """
    words = [str(word) for word in argv]
    with subprocess.Popen(
        [*_DIE_WITH_PARENT, *words],
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=environment(env),
        process_group=0,
    ) as child:
        try:
            printed, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode(errors="replace")
            raise OverdueError(words, timeout, output, hint=hint) from error
        finally:
            if child.returncode is None:
                # The group: dpkg-deb's tar would go on writing.
                os.killpg(child.pid, signal.SIGKILL)
    output = printed.decode(errors="replace")
    if check and child.returncode != 0:
        raise CommandError(words, f"ended with status {child.returncode}", output, hint=hint)
    return output


def run_logged(
    argv: Sequence[str | Path],
    *,
    log: Path,
    step: Step,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long command with its output in `log`, showing the last line of it as the step's detail."""
    words = [str(word) for word in argv]
    # A process namespace ends all of a build's processes with the first one; only root may make one.
    fence = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"] if os.geteuid() == 0 else []
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*_DIE_WITH_PARENT, *fence, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment(env),
        )
        deadline = time.monotonic() + timeout
        try:
            while (code := _wait_a_while(child)) is None:
                step.detail(last_line(log))
                if time.monotonic() > deadline:
                    raise OverdueError(words, timeout, tail(log), hint=f"see {log}")
        finally:
            child.kill()
            child.wait()
    if code != 0:
        raise CommandError(words, f"ended with status {code}", tail(log), hint=f"the whole log is {log}")


def _wait_a_while(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return None


def tail(log: Path, size: int = 4000) -> str:
    """Return the end of a log file, or nothing when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def last_line(log: Path) -> str:
    """Return the last line of a log file that is not empty."""
    lines = [line.strip() for line in tail(log, 500).splitlines() if line.strip()]
    return lines[-1][:100] if lines else ""
