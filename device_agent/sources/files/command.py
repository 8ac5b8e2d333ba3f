"""Runs the command that examines a unit, within a deadline, and remembers what it said.

A command that cannot be killed, because the kernel waits for a device, is not started a second time beside the first.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from device_agent.sources.files.file_unit import FileUnit
from device_resources.resource import Health
from kube_api.text import printable

log = logging.getLogger(__name__)

_MAX_OUTPUT = 4096
_SHOWN = 200
_AT_ONCE = 2
"""Commands that run side by side, of all resources."""

_LAST_MOMENTS = 2.0
"""Seconds in which commands that were killed may end before they are left alone."""

_MOST_COLLECTED = 1000

NOT_YET = "its command has not run yet"


@dataclass(slots=True)
class _Result:
    """What a unit's command said last, and when it is asked again."""

    why: str = NOT_YET
    due: float = 0.0
    task: "asyncio.Task[None] | None" = None


class Running:
    """The commands that run now, of all resources: how many may at once, and which processes are theirs."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_AT_ONCE)
        self._starting = 0
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, health: Health, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start a command in a session of its own.

        Raises:
            OSError: when it cannot be run.
        """
        self._starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                *health.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), **variables},
                start_new_session=True,
            )
        finally:
            self._starting -= 1
        self._processes[process.pid] = process
        return process

    def collect_strays(self) -> None:
        """Collect what commands left behind and has ended: as process 1 of a container the agent inherits it.

        The end of a command is for those who wait for it: what has just been started is not known yet.
        """
        self._processes = {pid: process for pid, process in self._processes.items() if process.returncode is None}
        for _ in range(0 if self._starting else _MOST_COLLECTED):
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid in self._processes:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)
            except ChildProcessError:
                return


class CommandChecks:
    """The commands of one resource. ``on_change`` is called when a verdict is another one than before."""

    def __init__(self, health: Health, running: Running, on_change: Callable[[], None]) -> None:
        self._health = health
        self._running = running
        self._on_change = on_change
        self._results: dict[str, _Result] = {}
        self.counts = {"success": 0, "failure": 0}

    def verdict(self, unit: FileUnit) -> str:
        """Return why a unit does not work as far as is known, and ask its command if it is time. Empty if it works."""
        if not self._health.command:
            return ""
        result = self._results.setdefault(unit.id, _Result())
        now = asyncio.get_running_loop().time()
        if result.task is None and now >= result.due:
            result.due = now + self._health.period_seconds
            result.task = asyncio.create_task(self._ask(unit, result))
        return result.why

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Forget verdicts of units that are gone: when they come back they are asked first."""
        for name in [name for name, result in self._results.items() if result.task is None and gone(name)]:
            del self._results[name]

    async def stop(self) -> None:
        """End all commands."""
        tasks = [result.task for result in self._results.values() if result.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_MOMENTS)

    async def _ask(self, unit: FileUnit, result: _Result) -> None:
        variables = {"DEVICE_ID": unit.id, "DEVICE_PATHS": ":".join(file.path for file in unit.files)}
        try:
            async with self._running.slots:
                why, process = await run_command(self._health, variables, self._running)
            self.counts["failure" if why else "success"] += 1
            if why != result.why:
                result.why = why
                self._on_change()
            if process is not None:
                await process.wait()  # one that cannot be killed keeps no other unit's command waiting
        finally:
            result.task = None


async def run_command(
    health: Health, variables: Mapping[str, str], running: Running
) -> tuple[str, asyncio.subprocess.Process | None]:
    """Run a command; returns why it failed, with what it said, and the process. Empty if it succeeded.

    When its time is over it is killed, and may still be there.
    """
    try:
        process = await running.start(health, variables)
    except OSError as error:
        return f"its command cannot be run: {health.command[0]}: {error.strerror}", None
    try:
        async with asyncio.timeout(health.timeout_seconds):
            output = await _finish(process)
    except TimeoutError:
        return f"its command took longer than {health.timeout_seconds} s", process
    finally:
        with suppress(ProcessLookupError):  # and all that it started
            os.killpg(process.pid, signal.SIGKILL)
    said = printable(output.decode(errors="replace"), _SHOWN)
    status = process.returncode
    return f"its command ended with {status}: {said}".rstrip(": ") if status else "", process


async def _finish(process: asyncio.subprocess.Process) -> bytes:
    """Read the output to its end, keep the first part, and wait for the command's end."""
    kept = b""
    while process.stdout is not None and (chunk := await process.stdout.read(_MAX_OUTPUT)):
        kept += chunk[: _MAX_OUTPUT - len(kept)]
    await process.wait()
    return kept
