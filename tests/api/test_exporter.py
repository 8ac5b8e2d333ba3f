"""A real Prometheus asks the exporter of an agent: DCGM's queries are answered, and no card seems to be the exporter's.

No API server is needed. The container ``nvml`` and the kubelet's podresources are stand-ins.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.use import VALUES, CardUse, Use, XidCount
from testbed.packages import why_unsupported
from testbed.ports import free_ports
from tests.support.real_parts.prometheus import Prometheus, program, prometheus
from tests.unit.device_agent.nvidia.life import Life, play, settings_of
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import card as nvml_card
from tests.unit.device_agent.nvidia.states import split, state
from tests.unit.device_agent.nvidia.test_profiles_in_use import mount
from tests.unit.device_agent.usage.examples import GPU, MIB, MIG, SHARED, amd, card, instance, process

PATIENCE = 180.0
"""Seconds: a busy machine is no fault of a query."""
NODE = "node-1"
TARGET = {"namespace": "driverwright", "pod": "device-agent-x7k2p", "container": "device-agent"}
"""What a PodMonitor says of the exporter's own pod."""
OF_CARDS = '__name__=~"DCGM_.*|device_agent_gpu_.*|device_agent_device_allocated"'
PLAIN = "nvidia: {}\n"
PROFILE = """\
version: v1
flags: {migStrategy: mixed}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: [1]}]
"""
BY_HOST, BY_INSTANCE = 'Hostname=~"$Hostname", gpu=~"$gpu"', 'instance=~"$instance", gpu=~"$gpu"'
DASHBOARD = [
    f"max(DCGM_FI_DEV_GPU_TEMP{{{BY_HOST}}}) by (Hostname, gpu, uuid)",
    f"avg(DCGM_FI_DEV_GPU_TEMP{{{BY_HOST}}})",
    f"max(DCGM_FI_DEV_POWER_USAGE{{{BY_HOST}}}) by (Hostname, gpu, uuid)",
    f"sum(max(DCGM_FI_DEV_POWER_USAGE{{{BY_HOST}}}) by (gpu))",
    f"max(DCGM_FI_DEV_SM_CLOCK{{{BY_HOST}}} * 1000000) by (Hostname, UUID, gpu)",
    f"max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{BY_HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
    f"max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{BY_HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
    f"max(DCGM_FI_DEV_FB_USED{{{BY_HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
    "DCGM_FI_DEV_FB_FREE",
    'DCGM_FI_DEV_FB_FREE{Hostname=~"$Hostname"}',
    f"DCGM_FI_DEV_GPU_TEMP{{{BY_INSTANCE}}}",
    f"avg(DCGM_FI_DEV_GPU_TEMP{{{BY_INSTANCE}}})",
    f"DCGM_FI_DEV_POWER_USAGE{{{BY_INSTANCE}}}",
    f"sum(DCGM_FI_DEV_POWER_USAGE{{{BY_INSTANCE}}})",
    f"DCGM_FI_DEV_SM_CLOCK{{{BY_INSTANCE}}} * 1000000",
    f"DCGM_FI_DEV_GPU_UTIL{{{BY_INSTANCE}}}",
    f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{BY_INSTANCE}}}",
    f"DCGM_FI_DEV_FB_USED{{{BY_INSTANCE}}}",
]
"""The queries of NVIDIA's dashboard 12239 and of its variables: of today's revision, and of the first one."""

pytestmark = pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))


def use_now() -> Use:
    """Say how cards are used now: a whole one, a shared one, a free one in MIG mode, and one of another vendor."""
    every: dict[str, float] = dict.fromkeys(VALUES, 1)
    values = {**every, "memory_used": 1000 * MIB, "memory_total": 4000 * MIB, "busy_percent": 50, "throttle": 4}
    cards: tuple[CardUse, ...] = (
        card(0, values=values),
        card(1, process("p1", 300 * MIB, 20), process("p2", 200 * MIB, 10, pid=2), values=values),
        card(2, values=values),
        instance(1, 2, values={"memory_used": 100 * MIB, "engine_active": 0.25}),
        amd(3),
    )
    pods = tuple(f"default/p{number}" for number in range(4))
    return Use("s1", seconds_since_boot(), cards, (XidCount("GPU-1", 79, 2),), pods)


def exported(folder: Path, ask: Callable[[int], None]) -> None:
    """Run an agent whose cards are used, have it export, and ask (beside its loop) whatever listens on the port."""
    pods, (port,) = Pods(folder), free_ports(1)
    mount(folder / "profiles", PROFILE)
    settings = settings_of(folder)._replace(profiles=str(folder / "profiles"), pod_resources=pods.path, node_name=NODE)

    async def act(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state(nvml_card(0), nvml_card(1), split(2, "1g.5gb")))
        await life.kubelet.until_shown({GPU: (1, 1), SHARED: (4, 4), MIG: (0, 1)})
        pods.run(GPU, "GPU-0")
        pods.run(SHARED, "GPU-1::0", "GPU-1::1")
        pods.run(MIG, "MIG-2-1")
        exporter = json.dumps({"enabled": True, "port": port, "perPod": True})
        life.config.write_text(f"{PLAIN}exporter: {exporter}\n")
        os.kill(os.getpid(), signal.SIGHUP)
        saying = asyncio.create_task(_keep_saying(life))
        try:
            await asyncio.to_thread(_when_complete, port, ask)
        finally:
            saying.cancel()
            await asyncio.wait([saying])
            await pods.stop()

    with suppress(asyncio.CancelledError):
        play(folder, act, PLAIN, settings)


async def _keep_saying(life: Life) -> None:
    while True:
        life.nvml.use(use_now())
        await asyncio.sleep(0.5)


def _when_complete(port: int, ask: Callable[[int], None]) -> None:
    began = time.monotonic()
    while not ("MIG-2-1" in (text := _page(port)) and "DCGM" in text):
        assert time.monotonic() - began < PATIENCE, text
        time.sleep(0.1)
    ask(port)


def _page(port: int) -> str:
    try:
        return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).text
    except requests.ConnectionError as error:
        return str(error)


def _answers(server: Prometheus, expr: str) -> list[dict[str, Any]]:
    """Ask until there is an answer."""
    began = time.monotonic()
    while not (found := server.query(expr)):
        assert time.monotonic() - began < PATIENCE, f"no answer: {expr}"
        time.sleep(0.2)
    return found


def _pods(server: Prometheus, expr: str) -> dict[str, float]:
    """Return the value of each pod's series; the key is empty for a series without the three labels."""
    found = {}
    for series in _answers(server, expr):
        labels = series["metric"]
        named = [labels.get(name, "") for name in ("namespace", "pod", "container")]
        assert all(named) or not any(named), series
        found[labels.get("pod", "")] = float(series["value"][1])
    return found


def _ask_prometheus(folder: Path, port: int) -> None:
    with prometheus(folder, [port], honoring=TARGET) as server:
        # A shared card's own series has none of the labels, though the target has all of them.
        assert _pods(server, 'DCGM_FI_DEV_FB_USED{gpu="1"}') == {"": 1000, "p1": 300, "p2": 200}
        assert _pods(server, 'DCGM_FI_DEV_GPU_UTIL{gpu="1"}') == {"": 50, "p1": 20, "p2": 10}
        assert _pods(server, 'DCGM_FI_DEV_POWER_USAGE{gpu="1"}') == {"": 1}
        assert _pods(server, 'DCGM_FI_DEV_FB_USED{gpu="0"}') == {"p0": 1000}
        assert _pods(server, 'DCGM_FI_DEV_FB_USED{gpu="2",GPU_I_ID=""}') == {"": 1000}
        assert _pods(server, 'DCGM_FI_DEV_FB_USED{gpu="2",GPU_I_ID="1"}') == {"p3": 100}
        assert _pods(server, 'device_agent_gpu_memory_used_bytes{device="card3"}') == {"": 1000 * MIB}
        assert _pods(server, "device_agent_gpu_xid_total") == {"": 2}
        assert _pods(server, "device_agent_device_allocated") == {f"p{number}": 1 for number in range(4)}
        assert server.query(f'{{{OF_CARDS},pod="{TARGET["pod"]}"}}') == []
        assert server.query(f'{{{OF_CARDS},namespace="{TARGET["namespace"]}"}}') == []
        assert _answers(server, f'device_agent_use_current{{pod="{TARGET["pod"]}"}}')[0]["value"][1] == "1"
        for expr in DASHBOARD:
            filled = expr.replace("$Hostname", f"({NODE})").replace("$gpu", "(0|1|2)")
            _answers(server, filled.replace("$instance", f"127.0.0.1:{port}"))


def test_a_prometheus_that_honours_labels_sees_no_card_as_the_exporters(tmp_path: Path) -> None:
    """Not a shared one, nor a free one; and each query of NVIDIA's dashboard has an answer."""
    with tempfile.TemporaryDirectory() as folder:  # with a short name, for sockets
        exported(Path(folder), lambda port: _ask_prometheus(tmp_path, port))


def test_promtool_reads_the_page() -> None:
    """It finds nothing but names that are DCGM's own."""

    def check(port: int) -> None:
        command = [str(program("promtool")), "check", "metrics"]
        done = subprocess.run(command, input=_page(port), capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in (0, 3), done.stderr
        remarks = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        of_ours = [line for line in remarks if not re.match(r"DCGM_|\S+ label names should be written in", line)]
        assert of_ours == []

    with tempfile.TemporaryDirectory() as folder:
        exported(Path(folder), check)
