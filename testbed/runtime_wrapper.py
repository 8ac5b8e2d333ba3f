"""A container runtime that asks for nothing that a restricted root may not have.

Lowering an OOM score needs CAP_SYS_RESOURCE, which root lacks in many virtual machines and containers; runc then fails
with "can't get final child's PID from pipe: EOF", and kubelet's sandboxes always ask for -998. Docker calls this file
in place of runc: it raises a negative score to 0 and hands over to the real one. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_RUNTIME = "runc"


def with_allowed_oom_score(process: dict[str, Any]) -> dict[str, Any]:
    """Return an OCI process description whose OOM score is not negative."""
    return {**process, "oomScoreAdj": 0} if process.get("oomScoreAdj", 0) < 0 else process


def option(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of a command line option, written as `--name value` or `--name=value`."""
    for index, word in enumerate(arguments):
        if word in names and index + 1 < len(arguments):
            return arguments[index + 1]
        name, equals, value = word.partition("=")
        if equals and name in names:
            return value
    return None


def _rewrite(arguments: Sequence[str]) -> None:
    """Rewrite what this call is about to read: a new container's bundle, or the process of an exec."""
    if bundle := option(arguments, "--bundle", "-b"):
        path = Path(bundle) / "config.json"
        config = json.loads(path.read_text())
        config["process"] = with_allowed_oom_score(config["process"])
        path.write_text(json.dumps(config))
    elif process := option(arguments, "--process", "-p"):
        path = Path(process)
        path.write_text(json.dumps(with_allowed_oom_score(json.loads(path.read_text()))))


def launcher_text(python: str) -> str:
    """Return a shell script to be registered as the runtime; most calls go to runc without starting Python."""
    return f"""#!/bin/sh
case " $* " in
*" --bundle"* | *" -b "* | *" --process"* | *" -p "*) exec {python} -I -S {__file__} "$@" ;;
esac
exec {_RUNTIME} "$@"
"""


if __name__ == "__main__":
    _rewrite(sys.argv[1:])
    os.execvp(_RUNTIME, [_RUNTIME, *sys.argv[1:]])  # noqa: S606
