"""Commands that examine a device: a deadline, bounded output, and verdicts that recover."""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.sources.files.command import NOT_YET, CommandChecks, Running, run_command
from device_agent.sources.files.file_unit import FileUnit as Unit
from device_resources.resource import Health

_CHILD_SUBREAPER = 36
"""Of <sys/prctl.h>."""
UNIT = Unit(group=0, ordinal=0, required=("/dev/a0",), files=())


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("true", "", id="success"),
        pytest.param("echo no such card; exit 3", "its command ended with 3: no such card", id="failure"),
        pytest.param("echo oops >&2; exit 1", "its command ended with 1: oops", id="standard error"),
        pytest.param("exit 4", "its command ended with 4", id="silence"),
        pytest.param("kill -9 $$", "its command ended with -9", id="killed"),
        pytest.param('test "$DEVICE_ID" = x', "", id="it knows its device"),
        pytest.param("sleep 100", "its command took longer than 1 s", id="endless"),
        pytest.param(
            "trap '' TERM; sleep 100 & wait", "its command took longer than 1 s", id="it does not want to end"
        ),
    ],
)
def test_a_command_succeeds_or_says_why(script: str, expected: str) -> None:
    """Status 0 in time is success."""
    health = Health(command=("/bin/sh", "-c", script), timeout_seconds=1 if "sleep" in script else 60)

    async def ask() -> str:
        why, process = await run_command(health, {"DEVICE_ID": "x"}, Running())
        assert process is not None
        assert process.stdout is not None
        await process.wait()
        await process.stdout.read()
        await asyncio.sleep(0)  # the loop ends here: what it has not closed by then is found by another test
        return why

    assert asyncio.run(ask()) == expected


def test_output_without_end_is_cut() -> None:
    """The command is not stopped by it, and the message is short."""
    script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 1"
    why, _ = asyncio.run(run_command(Health(command=("/bin/sh", "-c", script), timeout_seconds=60), {}, Running()))
    assert why.startswith("its command ended with 1: xxx")
    assert len(why) < 300


def test_a_command_that_is_not_there_is_named() -> None:
    """No exception comes out."""
    why, process = asyncio.run(run_command(Health(command=("/nowhere/check",)), {}, Running()))
    assert (why, process) == ("its command cannot be run: /nowhere/check: No such file or directory", None)


@pytest.mark.parametrize("escapes", ["", "setsid "], ids=["its group", "a session of its own"])
def test_what_a_command_leaves_behind_is_collected(tmp_path: Path, escapes: str) -> None:
    """As process 1 of a container the agent inherits it; here it is made the one who inherits."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)
    left = tmp_path / "left"
    script = f"{escapes}sh -c 'echo $$ >{left}.new; mv {left}.new {left}; exec sleep 0.3' >/dev/null 2>&1 & "
    health = Health(command=("/bin/sh", "-c", f"{script} while [ ! -e {left} ]; do sleep 0.05; done"))

    async def ask() -> None:
        running = Running()
        why, process = await run_command(health, {}, running)
        assert (why, process is not None and process.returncode) == ("", 0)
        child = Path(f"/proc/{int(left.read_text())}")
        assert _parent(child) in (os.getpid(), None)
        async with asyncio.timeout(60):
            while child.exists():
                running.collect_strays()
                await asyncio.sleep(0.02)

    try:
        asyncio.run(ask())
    finally:
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 0)


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_the_end_of_a_command_is_left_to_who_waits_for_it() -> None:
    """Whenever strays are collected."""

    async def ask() -> None:
        running = Running()
        script = Health(command=("/bin/sh", "-c", "exit 3"))
        asked = [asyncio.create_task(run_command(script, {}, running)) for _ in range(20)]
        while not all(task.done() for task in asked):
            running.collect_strays()
            await asyncio.sleep(0)
        assert {task.result()[0] for task in asked} == {"its command ended with 3"}

    asyncio.run(ask())


def _checked(act: Callable[[CommandChecks, asyncio.Event], Awaitable[None]], script: str) -> None:
    async def work() -> None:
        changed = asyncio.Event()
        health = Health(command=("/bin/sh", "-c", script), timeout_seconds=60, period_seconds=5)
        checks = CommandChecks(health, Running(), changed.set)
        await act(checks, changed)
        await checks.stop()

    asyncio.run(work())


def test_a_device_is_not_healthy_until_its_command_has_succeeded(tmp_path: Path) -> None:
    """The first verdict comes when the command has ended; it is not asked again before its time."""
    log = tmp_path / "log"

    async def act(checks: CommandChecks, changed: asyncio.Event) -> None:
        assert checks.verdict(UNIT) == NOT_YET
        await changed.wait()
        assert [checks.verdict(UNIT) for _ in range(3)] == ["", "", ""]
        assert log.read_text() == "asked\n"

    _checked(act, f"echo asked >>{log}")


def test_a_device_that_was_away_is_asked_first() -> None:
    """What was known of it before counts no more."""

    async def act(checks: CommandChecks, changed: asyncio.Event) -> None:
        checks.verdict(UNIT)
        await changed.wait()
        await asyncio.sleep(0)
        while checks.verdict(UNIT):
            await asyncio.sleep(0.01)
        checks.forget(lambda _: True)
        assert checks.verdict(UNIT) == NOT_YET

    _checked(act, "true")
