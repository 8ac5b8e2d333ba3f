"""What the container's two processes have loaded, as the script starts them; the child is a copy of the other one.

``-I -S`` and a search path of two entries: what an editable installation loads by itself is not theirs.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from device_agent.gpu_state.state import ABSENT
from tests.unit.device_agent.nvml_container.running import SECONDS, Client, answers, wait_for

REPOSITORY = Path(__file__).parents[4]

START = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from device_agent.cli import start
sys.argv = ["device-agent", "nvml", *json.loads(sys.argv[2])]
try:
    start.main()
finally:
    print(json.dumps(sorted(name for name, module in sys.modules.items() if module)))
"""

END_EARLY = """
import os, signal, sys
from device_agent.nvml_container.run import run_nvml, run_with_flags

class Environment(dict):
    def get(self, *of):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().get(*of)

sys.exit(eval(sys.argv[1], {**globals(), "environment": Environment()}))
"""
"""SIGTERM arrives when the settings are read, which is before anything else is done."""

FORBIDDEN = frozenset({
    "argparse", "asyncio", "dataclasses", "grpclib", "hashlib", "inspect", "logging", "multiprocessing", "pathlib",
    "random", "shutil", "_ssl", "subprocess", "tempfile", "yaml",
})  # fmt: skip
"""Each of them would cost the container's processes from 0.2 to 5 MiB for ever."""


CHANGES = frozenset({"device_agent.nvml_container.mig_changing", "nvml_inventory.mig_changes"})


@pytest.mark.parametrize(
    ("flags", "loaded"),
    [
        pytest.param([], frozenset[str](), id="by default"),
        pytest.param(["--changes-mig=true"], CHANGES, id="where MIG is changed"),
    ],
)
def test_nothing_heavy_is_loaded_and_no_library_of_the_drivers(
    tmp_path: Path, flags: list[str], loaded: frozenset[str]
) -> None:
    """Neither TLS nor logging nor a parser; NVML's binding is shared with the child, the library is the child's.

    What changes MIG is loaded only where that is switched on.
    """
    sock = tmp_path / "nvml.sock"
    path = json.dumps([str(REPOSITORY), sysconfig.get_path("purelib")])
    arguments = json.dumps([f"--socket={sock}", f"--root={tmp_path}", *flags])
    command = [sys.executable, "-I", "-S", "-c", START, path, arguments]
    environment = {**os.environ, "LD_LIBRARY_PATH": ""}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    try:
        wait_for(lambda: answers(sock) or process.poll() is not None, "the socket")
        client = Client(sock)
        client.ask("follow")
        assert client.state().status == ABSENT
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        client.close()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate()
    modules = frozenset(json.loads(output))
    assert process.returncode == 0
    assert "libnvidia-ml" not in maps
    assert {"device_agent.nvml_container.supervisor", "pynvml"} <= modules
    assert modules & FORBIDDEN == set()
    assert modules & CHANGES == loaded


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        pytest.param(["--help"], 0, "Ask NVIDIA's NVML for the agent", id="help"),
        pytest.param(["--socket", "/nowhere/nvml.sock"], 1, "cannot listen on /nowhere/nvml.sock", id="two words"),
        pytest.param(["--socket=/nowhere/nvml.sock"], 1, "cannot listen on /nowhere/nvml.sock", id="no folder"),
        pytest.param(["--log-level=loud"], 2, "'loud' is not one of debug, info", id="a wrong level"),
        pytest.param(["--interval=1s"], 2, "unrecognized arguments", id="a flag of the agent"),
    ],
)
def test_the_command_ends_with_its_status(arguments: list[str], status: int, message: str) -> None:
    """0 done, 1 the socket cannot be had, 2 wrong usage."""
    command = [sys.executable, "-m", "device_agent", "nvml", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == status
    assert message in done.stdout + done.stderr


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("run_nvml([], environment)", id="as the chart starts it"),
        pytest.param("run_with_flags({}, environment)", id="by argparse"),
    ],
)
def test_sigterm_is_obeyed_before_the_supervisor_follows_it(call: str) -> None:
    """Exit status 0: the kernel ignores a signal without a handler for the first process of a container."""
    command = [sys.executable, "-c", END_EARLY, call]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
