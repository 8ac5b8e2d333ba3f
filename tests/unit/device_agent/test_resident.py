"""What the resident process has loaded and what it weighs, as the script starts it, with a resource registered.

``-I -S`` and a search path of two entries: what an editable installation loads by itself is not the agent's.
"""

import asyncio
import json
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.ports import free_ports
from tests.unit.device_agent.host_tree import HostTree
from tests.unit.device_agent.kubelet_stand_in import Kubelet

REPOSITORY = Path(__file__).parents[3]
CONFIG = """\
resources:
- name: example.com/card
  groups:
  - count: 4
    paths: [{path: /dev/card*, type: Mount}]
  health: {driver: card}
"""
FORBIDDEN = frozenset({
    "argparse", "difflib", "google", "grpc", "hashlib", "http.client", "kubernetes", "multiprocessing",
    "pathlib", "prometheus_client", "pydantic", "pyudev", "re2", "requests", "_ssl", "unittest", "urllib3",
})  # fmt: skip
"""Each of them would cost the resident process from 0.2 to 14 MiB for ever."""

MOST_MIB_ABOVE_THE_INTERPRETER = 14.0 if sys.version_info < (3, 14) else 15.0
"""Debian 12's interpreter alone has 7.7 MiB, and the limit for the image is 28. Python 3.14's own modules have more."""

LOOK_AT_ITSELF = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])

def resident_kib():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

before = resident_kib()
from device_agent.cli import start
start.without_tls()
from device_agent.stand_in import standing_in
with standing_in("pathlib", Path=object):
    from device_agent import agent
leave = agent.Agent._leave

async def looked(self):
    print(json.dumps([sorted(name for name, module in sys.modules.items() if module), before, resident_kib()]))
    await leave(self)

agent.Agent._leave = looked
sys.argv = ["device-agent", *json.loads(sys.argv[2])]
start.main()
"""


class Resident(NamedTuple):
    """What a running agent has loaded, and how much more than an empty interpreter it weighs."""

    modules: frozenset[str]
    mib: float


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Resident:
    """Look into an agent whose list a kubelet watches."""
    folder = tmp_path_factory.mktemp("resident")
    host = HostTree(folder / "host")
    host.file("/dev/card0")
    plugins = folder / "plugins"
    plugins.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (port,) = free_ports(1)
    arguments = [
        "run", f"--config={folder}/config.yaml", f"--root={host.path}", f"--plugin-dir={plugins}", f"--port={port}",
    ]  # fmt: skip
    path = [str(REPOSITORY), sysconfig.get_path("purelib")]
    command = ["-I", "-S", "-c", LOOK_AT_ITSELF, json.dumps(path), json.dumps(arguments)]

    async def work() -> bytes:
        kubelet = Kubelet(plugins)
        await kubelet.start()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert len(await kubelet.next_list() or {}) == 4
        process.terminate()
        output, _ = await process.communicate()
        assert process.returncode == 0
        await kubelet.stop()
        return output

    modules, before, after = json.loads(asyncio.run(work()))
    return Resident(frozenset(modules), (after - before) / 1024)


def test_nothing_heavy_is_loaded(resident: Resident) -> None:
    """No TLS, no client of the API server, no command-line parser."""
    assert "device_agent.agent" in resident.modules
    assert resident.modules & FORBIDDEN == set()


def test_what_only_gpus_and_the_exporter_need_is_not_loaded(resident: Resident) -> None:
    """The configuration has neither ``nvidia:`` nor ``exporter:``."""
    rooms = ("device_agent.allocations", "device_agent.exporter", "device_agent.gpu_state", "device_agent.mig",
             "device_agent.nvml_client", "device_agent.profiles", "device_agent.sources.nvidia", "device_agent.usage",
             "device_agent.users", "device_resources.exporter", "device_resources.gpu_sharing",
             "device_resources.nvidia")  # fmt: skip
    assert [name for name in sorted(resident.modules) if name.startswith(rooms)] == []


def test_the_agent_is_small(resident: Resident) -> None:
    """With a resource registered and its list watched."""
    print(f"\ndevice-agent: {resident.mib:.1f} MiB more than an interpreter")
    assert resident.mib <= MOST_MIB_ABOVE_THE_INTERPRETER
