"""Asks the admission plugin for policies of a newer Kubernetes about changes of Nodes (``policy_judge.go``)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from testbed.errors import TestbedError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the plugin says: of what it refuses, what the API server would answer."""

    allowed: bool
    code: int = 0
    reason: str = ""
    message: str = ""


class PolicyJudge:
    """The plugin with policies and bindings in force, in a process of its own that ends with the ``with`` block."""

    def __init__(self, program: Path, manifests: Sequence[Json]) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.release: str = self._ask(list(manifests))["release"]
        """The release whose plugin it is, as ``1.36``."""

    def judge(
        self,
        *,
        user: str,
        new: Json,
        old: Json | None,
        extra: Mapping[str, Sequence[str]] | None = None,
        subresource: str = "",
        name: str = "",
    ) -> Verdict:
        """Say whether a user may make a Node of another one, or create it where there is no ``old`` one."""
        request = {
            "user": user,
            "extra": {key: list(values) for key, values in (extra or {}).items()},
            "name": name,
            "subresource": subresource,
            "object": new,
            "oldObject": old,
        }
        return Verdict(**self._ask(request))

    def _ask(self, what: object) -> Json:
        try:
            print(json.dumps(what), file=_open(self._process.stdin), flush=True)
            answer = _open(self._process.stdout).readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise TestbedError(f"{self._process.args!r} ended with {self._process.wait()}")
        parsed: Json = json.loads(answer)
        return parsed

    def close(self) -> None:
        """End the process."""
        _open(self._process.stdin).close()
        self._process.wait()
        _open(self._process.stdout).close()

    def __enter__(self) -> PolicyJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
