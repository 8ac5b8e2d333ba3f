"""What device-agent's pod weighs on a node with eight NVIDIA GPUs, beside one process of pynvml and grpcio.

``python bench/device_agent_memory.py`` starts the agent with ``nvidia: {}`` and the container ``nvml`` (a supervisor
and its child) on a folder in place of a node, with the test library in place of NVML (tests/nvml; it needs gcc) and a
stand-in for the kubelet that watches the list of GPUs. Then it starts the other one on the same machine of GPUs.
Printed is PSS after some looks, in MiB: the sum of the pod's processes, and how many times that the other one has; and
the same "alone", where nothing else on the machine shares the interpreter's files. The status is 1 where the pod has
more than 40 MiB alone.

All run with the interpreter that runs this, ``-I -S``: what an editable installation loads is nobody's. A real
libnvidia-ml takes more than the test library, in either case.
"""

import asyncio
import importlib.resources
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from grpc_tools import protoc

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.nvml import build  # noqa: E402
from tests.nvml.machine import FakeMachine  # noqa: E402
from tests.unit.device_agent.kubelet_stand_in import Kubelet  # noqa: E402

PROTO = REPOSITORY / "tests/data/device_plugin.proto"
SERVER = REPOSITORY / "tests/data/reference-plugin"
GPUS = 8
MOST_MIB = 40.0
REST_SECONDS = 25.0
"""Longer than two looks at the GPUs."""

START = """
import json, sys
sys.path[:0] = json.loads(sys.argv.pop(1))
from device_agent.cli.start import main
main()
"""
"""What pip makes of an entry point, for a search path that is an argument."""

PATH = json.dumps([str(REPOSITORY), sysconfig.get_path("purelib")])


def main() -> int:
    """Measure and print; returns the exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)
        machine = FakeMachine(folder / "machine", count=GPUS)
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), **machine.environment()}
        pod = asyncio.run(measure_pod(folder, environment))
        other = asyncio.run(measure_other(folder, library, environment))
    for process, weight in pod.items():
        print(f"{process:<20}{weight.pss:6.1f} MiB")
    ours, theirs = sum(weight.pss for weight in pod.values()), other.pss
    alone, their_alone = alone_mib([*pod.values()]), alone_mib([other])
    print(f"{'the pod':<20}{ours:6.1f} MiB, alone {alone:.1f} MiB of at most {MOST_MIB:.0f}")
    print(f"{'pynvml with grpcio':<20}{theirs:6.1f} MiB, alone {their_alone:.1f} MiB")
    print(f"{'times the pod':<20}{theirs / ours:6.2f}, alone {their_alone / alone:.2f}")
    return int(alone > MOST_MIB)


class Weight(NamedTuple):
    """MiB of a process: PSS, of it anonymous, and pages of files that it has mapped, shared ones counted whole."""

    pss: float
    anonymous: float
    files: float


def alone_mib(weights: Sequence[Weight]) -> float:
    """Return what processes have that share files with each other alone: those of the one that has most are all."""
    return sum(weight.anonymous for weight in weights) + max(weight.files for weight in weights)


async def measure_pod(folder: Path, environment: Mapping[str, str]) -> dict[str, Weight]:
    """Return what each process of the pod weighs."""
    plugins, root, socket, config = (folder / name for name in ("plugins", "host", "nvml.sock", "config.yaml"))
    root.mkdir()
    config.write_text("nvidia: {}\n")
    agent = (
        "run", f"--config={config}", f"--root={root}", f"--plugin-dir={plugins}", f"--socket={folder}/agent.sock",
        "--port=0", f"--nvml-socket={socket}", f"--state-dir={folder}",
    )  # fmt: skip
    nvml = ("nvml", f"--socket={socket}", f"--root={root}")
    with (
        running("-c", START, PATH, *nvml, environment=environment) as supervisor,
        running("-c", START, PATH, *agent, environment=environment) as resident,
    ):
        async with watched(plugins):
            return {
                "agent": weigh(resident.pid),
                "nvml, supervisor": weigh(supervisor.pid),
                "nvml, child": weigh(child_of(supervisor.pid)),
            }


async def measure_other(folder: Path, library: Path, environment: Mapping[str, str]) -> Weight:
    """Return what one process of pynvml and grpcio weighs."""
    include = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{PROTO.parent}", f"-I{include}", f"--python_out={folder}", PROTO.name]
    assert protoc.main(arguments) == 0
    path = json.dumps([str(folder), sysconfig.get_path("purelib"), str(SERVER)])
    script = str(REPOSITORY / "bench/device_agent_parts/reference.py")
    with running(script, path, str(library), str(folder / "plugins"), environment=environment) as process:
        async with watched(folder / "plugins"):
            return weigh(process.pid)


@asynccontextmanager
async def watched(plugins: Path) -> AsyncIterator[None]:
    """Be a kubelet that has got a list of all GPUs, some time ago."""
    plugins.mkdir(exist_ok=True)
    kubelet = Kubelet(plugins)
    await kubelet.start()
    try:
        while len(await kubelet.next_list() or {}) < GPUS:
            pass
        await asyncio.sleep(REST_SECONDS)
        yield
    finally:
        await kubelet.stop()


@contextmanager
def running(*arguments: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Python's."""
    command = (sys.executable, "-I", "-S", *arguments)
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def child_of(pid: int) -> int:
    """Return the one child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def weigh(pid: int) -> Weight:
    """Return what a process has of memory; PSS has its part of what it shares."""
    text = "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("smaps_rollup", "status"))
    fields = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    kib = {words[0].rstrip(":"): int(words[1]) for words in fields}
    return Weight(*(kib[name] / 1024 for name in ("Pss", "Pss_Anon", "RssFile")))


if __name__ == "__main__":
    sys.exit(main())
