"""The child as its supervisor has it."""

import subprocess
import sys

_ENDS_FIRST = """
import os
from device_agent.nvml_container.child_process import start_child

def work(requests, lines, may_make_nodes):
    os.write(lines, b"the last words\\n")
    return 3

child = start_child(work, False, 0.0)
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(child.reap(), child.read(1.0), child.read(1.0))
child.kill(2.0)
child.close()
"""


def test_what_a_child_said_before_it_ended_is_read_after_it_was_reaped() -> None:
    """It says why it ends and ends at once, and its end may be seen first. Nothing is killed that has its number."""
    command = (sys.executable, "-c", _ENDS_FIRST)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "3 [b'the last words'] None\n"
