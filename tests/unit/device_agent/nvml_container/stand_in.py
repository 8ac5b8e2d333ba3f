"""A real supervisor whose child does what the files of a folder say, instead of asking NVML.

``python -m tests.unit.device_agent.nvml_container.stand_in FOLDER TIMING``: TIMING are seconds by name, as JSON. Of the
folder, ``say`` is what the child writes at its start and whenever it is asked or a look is due, byte by byte; ``then``
is what it does after that (:data:`THEN`; it goes on asking without that file). It leaves ``pids``, ``asked``, ``used``
and ``descriptors`` there, and ``program``: the process id of one that it has started.
"""

import ctypes
import json
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from device_agent.errors import SocketUnusable
from device_agent.gpu_state.requests import dump_request
from device_agent.nvml_container.child_process import Wanted
from device_agent.nvml_container.listen import listening
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.settings import Timing
from device_agent.nvml_container.supervisor import Supervisor, new_state

_PR_SET_CHILD_SUBREAPER = 36


def _write_without_end(lines: int) -> None:
    while True:
        os.write(lines, b"x" * 65536)


def _close_and_stay(lines: int) -> None:
    os.close(lines)
    time.sleep(3600)


def _wait_for_a_program(_lines: int) -> None:
    """Start one that does not end, as the driver's library does with nvidia-modprobe."""
    program = os.posix_spawn("/bin/sleep", ["sleep", "3600"], os.environ)
    Path(sys.argv[1], "program").write_text(str(program))
    os.waitpid(program, 0)


THEN: dict[str, Callable[[int], object]] = {
    "end": lambda _: os._exit(0),
    "fail": lambda _: os._exit(3),
    "abort": lambda _: os.abort(),
    "hang": lambda _: time.sleep(3600),
    "endless line": _write_without_end,
    "close": _close_and_stay,
    "program": _wait_for_a_program,
}


class StandIn:
    """The child."""

    def __init__(self, folder: Path, timing: Timing) -> None:
        self._folder = folder
        self._timing = timing

    def work(self, requests: int, lines: int, wanted: Wanted) -> int:
        """Do what the folder says, until there is no supervisor any more."""
        names = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are what is wanted
        (self._folder / "descriptors").write_text(" ".join(names))
        self._note("pids", f"{os.getpid()}\n")
        self._note("asked", "M" if wanted.makes_nodes else "-")
        self._note("used", dump_request(*wanted.use).decode())
        while True:
            os.write(lines, (self._folder / "say").read_bytes())
            with suppress(FileNotFoundError):
                THEN[(self._folder / "then").read_text()](lines)
            if select.select([requests], [], [], self._timing.look)[0]:
                asked = os.read(requests, 1 << 16).decode()
                if not asked:
                    return 0
                self._note("asked", asked)

    def _note(self, name: str, text: str) -> None:
        with (self._folder / name).open("a") as file:
            file.write(text)


def main(folder: Path, timing: Timing) -> int:
    """Run the supervisor; returns its exit status."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become its children, as those of a container's first
    work = StandIn(folder, timing).work
    supervisor = Supervisor(work=work, state=new_state("boot"), root=str(folder), timing=timing, log=Log("debug"))
    try:
        with listening(f"{folder}/nvml.sock") as made:
            supervisor.run(made)
    except SocketUnusable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Timing(**json.loads(sys.argv[2]))))
