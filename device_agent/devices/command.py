"""Runs the command that examines a unit, within a deadline, and remembers what it said.

A command that cannot be killed, because the kernel waits for a device, is not started a second time beside the first.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from device_agent.devices.model import Unit
from device_resources.resource import Health
from kube_api.text import printable

log = logging.getLogger(__name__)

_MAX_OUTPUT = 4096
_SHOWN = 200
_AT_ONCE = 2
"""Commands that run side by side, of all resources."""

_LAST_MOMENTS = 2.0
"""Seconds in which commands that were killed may end before they are left alone."""

_REAP_ATTEMPTS, _REAP_SECONDS = 100, 0.05

NOT_YET = "its command has not run yet"


@dataclass(slots=True)
class _Result:
    """What a unit's command said last, and when it is asked again."""

    why: str = NOT_YET
    due: float = 0.0
    task: "asyncio.Task[None] | None" = None


class CommandChecks:
    """The commands of one resource. ``on_change`` is called when a verdict is another one than before."""

    def __init__(self, health: Health, slots: asyncio.Semaphore, on_change: Callable[[], None]) -> None:
        self._health = health
        self._slots = slots
        self._on_change = on_change
        self._results: dict[str, _Result] = {}
        self.counts = {"success": 0, "failure": 0}

    def verdict(self, unit: Unit) -> str:
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

    async def _ask(self, unit: Unit, result: _Result) -> None:
        variables = {"DEVICE_ID": unit.id, "DEVICE_PATHS": ":".join(file.path for file in unit.files)}
        try:
            async with self._slots:
                why, process = await run_command(self._health, variables)
            self.counts["failure" if why else "success"] += 1
            if why != result.why:
                result.why = why
                self._on_change()
            if process is not None:
                await process.wait()  # one that cannot be killed keeps no other unit's command waiting
                await reap(process.pid)
        finally:
            result.task = None


def slots() -> asyncio.Semaphore:
    """Make what limits how many commands run at once."""
    return asyncio.Semaphore(_AT_ONCE)


async def run_command(health: Health, variables: dict[str, str]) -> tuple[str, asyncio.subprocess.Process | None]:
    """Run a command; returns why it failed, with what it said, and the process. Empty if it succeeded.

    When its time is over it is killed, and may still be there.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), **variables}
    try:
        process = await asyncio.create_subprocess_exec(
            *health.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
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


async def reap(group: int) -> None:
    """Collect what a command left behind: as process 1 of a container the agent inherits it."""
    for _ in range(_REAP_ATTEMPTS):
        try:
            pid, _status = os.waitpid(-group, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            await asyncio.sleep(_REAP_SECONDS)


async def _finish(process: asyncio.subprocess.Process) -> bytes:
    """Read the output to its end, keep the first part, and wait for the command's end."""
    kept = b""
    while process.stdout is not None and (chunk := await process.stdout.read(_MAX_OUTPUT)):
        kept += chunk[: _MAX_OUTPUT - len(kept)]
    await process.wait()
    return kept
