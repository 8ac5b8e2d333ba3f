"""Renders a custom template in its own process, with limits on time and memory.

Place in the flow: ``templates`` calls :func:`render_own`. The text comes from the cluster: an expression in it may
ask for a number with a million digits or for a gigabyte of text, which no sandbox in Python prevents. In this process
that would stop every thread, including the Lease's (docs/decisions/0065-templates-in-a-child.md).
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, cast

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.templates import template_engine
from driver_builder.model.build import OwnTemplate

_MAX_ANSWER = 12 * template_engine.MAX_DOCKERFILE + 1024
"""Bytes. JSON may need twelve for a character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one template may use: seconds of CPU time, bytes of address space, and seconds on the clock.

    Our own templates take 0.2 s and 30 MB, of which the interpreter takes nearly all; the memory fits beside the
    controller in the limit of its container (512 MiB).
    """

    cpu_seconds: int = 5
    memory: int = 192 << 20
    seconds: float = 60.0


LIMITS = Limits()


def render_own(template: OwnTemplate, values: Mapping[str, object], *, limits: Limits = LIMITS) -> str:
    """The Dockerfile of a custom template.

    Raises:
        BuildFailed: TEMPLATE_INVALID, the template has an error or exceeds the limits.
        TemporaryError: no process can be started now.
    """
    asked = json.dumps({"place": template.place, "text": template.text, "values": dict(values)}).encode()
    content, code = _run(asked, limits)
    if code:
        raise _invalid(f"template {template.place} cannot be rendered: {_ended(code, limits)}")
    try:
        answer = json.loads(content)
        if "error" in answer:
            raise _invalid(str(answer["error"]))
        return str(answer["text"])
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid(f"template {template.place} cannot be rendered: its process returned nothing") from error


def _run(asked: bytes, limits: Limits) -> tuple[bytes, int]:
    """What the process wrote, and how it ended: an exit code, or a signal's number below 0."""
    command = [
        *(sys.executable, "-I", template_engine.__file__),
        *(str(limits.cpu_seconds), str(limits.memory)),
    ]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing of ours can be found in it, even outside of the sandbox.
            env={},
            cwd="/",
        )
    except OSError as error:
        raise TemporaryError(
            f"a template cannot be rendered now, because its process cannot be started: {error}"
        ) from error
    watchdog = threading.Timer(limits.seconds, process.kill)
    watchdog.start()
    try:
        return _exchange(process, asked)
    finally:
        watchdog.cancel()


def _exchange(process: "subprocess.Popen[bytes]", asked: bytes) -> tuple[bytes, int]:
    """Write all, then read all: the process reads to the end before it writes."""
    with process:
        with suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as question:
            # A process that ended early reports the cause by its exit code.
            question.write(asked)
        content = cast(IO[bytes], process.stdout).read(_MAX_ANSWER)
        if len(content) == _MAX_ANSWER:
            process.kill()
    return content, process.returncode


def _ended(code: int, limits: Limits) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {limits.cpu_seconds} s of CPU time"
    if code == -signal.SIGKILL:
        return f"its process was killed: it took more than {limits.seconds:g} s, or the machine is out of memory"
    return f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"


def _invalid(message: str) -> BuildFailed:
    return BuildFailed(Reason.TEMPLATE_INVALID, message)
