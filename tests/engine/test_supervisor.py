"""How a testbed's processes end."""

import resource
import sys
import time
from pathlib import Path

import pytest

from testbed.command import tail
from testbed.packages import why_unsupported
from testbed.process import Processes

BUSY = """
import os, time
os.fork()
while time.process_time() < 0.5:
    pass
print("done", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))
def test_what_the_processes_of_a_testbed_took_is_known_to_who_ends_it(tmp_path: Path) -> None:
    """Also what one took that runs until then, and its child: ``make test`` prints the sum."""
    processes = Processes.start(tmp_path / "dw-supervisor", outlive_harness=False)
    try:
        processes.spawn("busy", [sys.executable, "-c", BUSY])
        end = time.monotonic() + 600
        while tail(processes.log("busy")).count("done") < 2:
            assert time.monotonic() < end, tail(processes.log("busy"))
            time.sleep(0.05)
    finally:
        before = _taken_by_children()
        processes.end(keep_logs=False)
    assert _taken_by_children() - before >= 1.0


def _taken_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
