"""A process that has loaded the test library, and does what a test says: a process loads one library, and keeps it."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_LONGEST_ANSWER_SECONDS = 240.0

_PROGRAM = """
import ctypes, json, sys, time
from nvml_inventory.library import load_library
assert load_library("/", sys.argv[1])
import pynvml as nvml
from nvml_inventory.session import open_session

def plain(value):
    if hasattr(value, "_asdict"):
        return {"kind": type(value).__name__, **{name: plain(one) for name, one in value._asdict().items()}}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__

names = globals()
for line in sys.stdin:
    code = json.loads(line)
    try:
        answer = plain(eval(code, names)) if line_is_expression(code) else exec(code, names)
    except nvml.NVMLError as error:
        answer = {"error": error.value}
    except ValueError as error:
        answer = {"error": type(error).__name__}
    print(json.dumps(answer), flush=True)
"""

_ROOT = Path(__file__).parents[2]
"""Of this checkout: another one may be installed."""

_IS_EXPRESSION = f"""
import sys
sys.path.insert(0, {str(_ROOT)!r})

def line_is_expression(code):
    try:
        compile(code, "", "eval")
    except SyntaxError:
        return False
    return True
"""


class NvmlChild:
    """Runs lines of Python in a process of its own, with the real pynvml as ``nvml``."""

    def __init__(self, library: Path, environment: Mapping[str, str]) -> None:
        command = (sys.executable, "-I", "-c", _IS_EXPRESSION + _PROGRAM, str(library))
        variables = {"PATH": os.environ["PATH"], **environment}
        self._process = subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, code: str) -> Any:
        """Run a line and return its value: a tuple as a list, a named one as a dictionary, an error as its number."""
        self.start(code)
        return self.answer()

    def start(self, code: str) -> None:
        """Run a line, and do not wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the value of the line that was started."""
        assert self.has_answered(_LONGEST_ANSWER_SECONDS), "no answer"
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def has_answered(self, seconds: float) -> bool:
        """Wait at most this long for the value of the line that was started."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return bool(ready)

    def end(self) -> int:
        """Wait for the process to end by itself, and return its status."""
        return self._process.wait(_LONGEST_ANSWER_SECONDS)
