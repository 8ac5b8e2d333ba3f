"""An agent that exports: what Prometheus gets, what a reload changes, and whom nobody keeps waiting."""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.allocations.given import dump_given
from device_agent.boot import seconds_since_boot
from device_agent.config.options import Settings
from device_agent.gpu_state.requests import MAKE_NODES
from device_agent.gpu_state.use import XidCount
from device_agent.gpu_state.use_json import dump_use
from device_agent.usage.watch import USUAL
from testbed.ports import free_ports
from tests.unit.device_agent.memory_limits.examples import given_as
from tests.unit.device_agent.nvidia.life import Life, play, settings_of
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import lost, state
from tests.unit.device_agent.usage.examples import GPU, MIB, SHARED, card, process, use

LINE = 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",'
NODE = "node-1"
PERIOD = USUAL.period
PLAIN = "nvidia: {}\n"


async def get(port: int | str, path: str = "/metrics") -> str | None:
    """Read a page, with its head; None while nobody listens.

    Empty where nothing comes: asyncio loses a connection that it takes in the moment in which its server is closed.
    """
    try:
        opened = asyncio.open_unix_connection(port) if isinstance(port, str) else asyncio.open_connection("::1", port)
        reader, writer = await opened
    except OSError:
        return None
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    try:
        async with asyncio.timeout(10):
            return (await reader.read()).decode()
    except TimeoutError:
        return ""
    except ConnectionError:
        return None
    finally:
        writer.close()


async def shows(port: int, series: str, say: Callable[[], None] = lambda: None) -> str:
    """Wait until the page has a line that begins so. ``say``: is done before each look, as what is said gets old."""
    say()
    while f"\n{series}" not in (text := await get(port) or ""):
        await asyncio.sleep(0.01)
        say()
    return text


async def silent(port: int) -> None:
    """Wait until nobody listens."""
    while await get(port) is not None:
        await asyncio.sleep(0.01)


def asked(port: int, **fields: object) -> str:
    """Write a configuration with an exporter."""
    exporter = json.dumps({"enabled": True, "port": port, **fields})
    return f"nvidia: {{}}\nexporter: {exporter}\n"


def now(**fields: object) -> bytes:
    """Say of one card how it is used now."""
    said = {"at": seconds_since_boot(), "pods": None, **fields}
    return dump_use(use(card(0, process("p0", 300 * MIB)))._replace(**said))  # type: ignore[arg-type] # its fields


def settings(folder: Path) -> Settings:
    """Return the settings of an agent with pages on a socket."""
    return settings_of(folder)._replace(
        pod_resources=str(folder / "pods.sock"), node_name=NODE, socket=str(folder / "pages.sock")
    )


Act = Callable[[Life, Pods, int], Awaitable[None]]


def export(
    folder: Path, act: Act, *held: str, resource: str = GPU, config: Callable[[int], str] = asked, before: str = PLAIN
) -> None:
    """Run an agent between a kubelet and a container ``nvml``, have it export by a reload, and act.

    ``held``: devices that pods have by then. ``before``: the configuration until then.
    """
    pods = Pods(folder)
    (port,) = free_ports(1)

    async def work(life: Life) -> None:
        await pods.start()
        await life.nvml.start(state())
        await life.kubelet.until_shown({GPU: (4, 4)} if resource == GPU else {resource: (1, 1)})
        pods.run(resource, *held)
        reload(life, config(port))
        try:
            await act(life, pods, port)
        finally:
            await pods.stop()

    play(folder, work, before, settings(folder))


def reload(life: Life, config: str) -> None:
    """Have the agent read another configuration."""
    life.config.write_text(config)
    os.kill(os.getpid(), signal.SIGHUP)


def test_prometheus_gets_what_was_sampled(tmp_path: Path) -> None:
    """With the pod that has the card; many scrapes ask the container and the kubelet nothing."""

    async def act(life: Life, pods: Pods, port: int) -> None:
        await shows(port, "device_agent_pod_resources_current 1")
        text = await shows(port, LINE, lambda: life.nvml.say_use(now()))
        assert f'Hostname="{NODE}",namespace="default",pod="p0",container="c"}} 1000' in text
        assert "\ndevice_agent_use_current 1\n" in text
        assert f'resource="{GPU}",device="GPU-0",Hostname="{NODE}",namespace="default",pod="p0"' in text
        while await life.nvml.next_request() != MAKE_NODES:  # the last one at a start
            pass
        asked, requests = pods.asked, life.nvml.asked.qsize() + life.nvml.pods.qsize()
        began = time.monotonic()
        for _ in range(50):
            await get(port)
        assert pods.asked <= asked + 1 + (time.monotonic() - began) // PERIOD
        assert life.nvml.asked.qsize() + life.nvml.pods.qsize() == requests
        assert "200 OK" in (await get(port, "/healthz") or "")

    export(tmp_path, act, "GPU-0")


def test_a_lost_card_keeps_the_labels_of_its_xids(tmp_path: Path) -> None:
    """Its series of before are remembered, also over a time in which nothing is known."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        xids = (XidCount("GPU-0", 79, 1),)
        series = f'device_agent_gpu_xid_total{{gpu="0",UUID="GPU-0",Hostname="{NODE}"'
        await shows(port, series, lambda: life.nvml.say_use(now(xids=xids)))
        await shows(port, "device_agent_use_current 0", lambda: life.nvml.say_use(now(at=1.0, xids=xids)))
        text = await shows(port, "device_agent_use_current 1", lambda: life.nvml.say_use(now(cards=(), xids=xids)))
        assert series in text
        assert LINE not in text

    export(tmp_path, act)


def test_old_use_is_not_shown(tmp_path: Path) -> None:
    """Its age is, and who has what."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        life.nvml.say_use(now(at=seconds_since_boot() - 60))
        await shows(port, "device_agent_device_allocated{")
        text = await shows(port, "device_agent_use_age_seconds 6")
        assert "\ndevice_agent_use_current 0\n" in text
        assert "DCGM" not in text
        assert "device_agent_gpu" not in text

    export(tmp_path, act, "GPU-0")


def test_without_podresources_no_series_is_a_pods(tmp_path: Path) -> None:
    """The card's own have empty labels, and a metric says why."""

    async def act(life: Life, pods: Pods, port: int) -> None:
        await pods.stop()
        await shows(port, "device_agent_pod_resources_current 0")
        text = await shows(port, LINE, lambda: life.nvml.say_use(now()))
        assert f'Hostname="{NODE}",namespace="",pod="",container=""}} 1000' in text
        assert "device_agent_device_allocated" not in text

    export(tmp_path, act, "GPU-0")


def test_processes_are_asked_for_by_the_configuration(tmp_path: Path) -> None:
    """A reload is enough; whether they can be told is a metric of its own."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        assert await life.nvml.pods.get() is None
        assert "device_agent_processes_known" not in await shows(port, "device_agent_device_allocated{")
        reload(life, asked(port, perPod=True, hostnameLabel="node"))
        assert await life.nvml.pods.get() == ("default/p0",)
        known = {"pods": ("default/p0",)}
        await shows(port, "device_agent_processes_known 1", lambda: life.nvml.say_use(now(**known)))
        unknown = {**known, "processes": "the pod has no hostPID"}
        text = await shows(port, "device_agent_processes_known 0", lambda: life.nvml.say_use(now(**unknown)))
        assert f'node="{NODE}"' in text

    export(tmp_path, act, "GPU-0")


def test_an_exporter_comes_moves_and_goes_by_reloads(tmp_path: Path) -> None:
    """Without it nobody listens, nothing is asked, and there is no page of who has what."""
    (other,) = free_ports(1)
    pages = str(tmp_path / "pages.sock")

    async def act(life: Life, pods: Pods, port: int) -> None:
        assert "404 Not Found" in (await get(pages, "/who") or "")
        assert (pods.asked, life.nvml.pods.qsize()) == (0, 0)
        for at, gone in ((port, other), (other, port)):
            reload(life, asked(at))
            await shows(at, "device_agent_use_current")
            await silent(gone)
            assert "200 OK" in (await get(pages, "/who") or "")
        reload(life, PLAIN)
        await silent(other)
        assert "404 Not Found" in (await get(pages, "/who") or "")
        reload(life, asked(port, enabled=False))
        reload(life, asked(port))
        await shows(port, "device_agent_use_current")

    export(tmp_path, act, config=lambda _: PLAIN)


def test_an_agent_may_export_from_its_start(tmp_path: Path) -> None:
    """The kubelet may not answer yet."""
    (port,) = free_ports(1)

    async def act(_life: Life, _pods: Pods, _port: int) -> None:
        await shows(port, "device_agent_pod_resources_current 1")

    export(tmp_path, act, before=asked(port), config=lambda _: asked(port))


def test_what_was_given_before_the_agent_started_is_shown_though_it_is_not_offered(tmp_path: Path) -> None:
    """As after a change of profile: it is remembered that the resource is the agent's."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/allocations.json").write_bytes(dump_given(given_as(4, "GPU-0::1"), ""))

    async def act(_life: Life, pods: Pods, port: int) -> None:
        pods.run("example.com/nic", "eth1")
        pods.run(SHARED, "GPU-0::1")
        text = await shows(port, f'device_agent_device_allocated{{resource="{SHARED}",device="GPU-0::1",')
        assert "example.com/nic" not in text

    export(tmp_path, act)


def test_who_has_what_is_a_page_of_the_agent(tmp_path: Path) -> None:
    """With what is not known."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        await shows(port, "device_agent_device_allocated{")
        said = {"processes": "the pod has no hostPID"}
        await shows(port, "device_agent_use_current 1", lambda: life.nvml.say_use(now(**said)))
        page = json.loads((await get(str(tmp_path / "pages.sock"), "/who") or "").partition("\r\n\r\n")[2])
        (row,) = page["devices"]
        assert (row["device"], row["pod"], row["memoryBytes"]) == ("GPU-0", "p0", 1000 * MIB)
        assert page["problems"] == ["it is not known how much each pod uses: the pod has no hostPID"]

    export(tmp_path, act, "GPU-0", config=lambda port: asked(port, perPod=True))


def test_a_port_that_is_taken_keeps_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its setting, and tried again; devices are offered meanwhile."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        async with await asyncio.start_server(lambda _reader, writer: writer.close(), None, port):
            reload(life, asked(port))
            while "exporter.port; tried again" not in caplog.text:
                await asyncio.sleep(0.01)
            life.nvml.show(state(lost(0)))
            await life.kubelet.until_shown({GPU: (0, 4)})

    with caplog.at_level(logging.INFO):
        export(tmp_path, act, config=lambda _: PLAIN)
    assert caplog.text.count("cannot listen on port") == 1


def test_a_scraper_that_does_not_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Others get their pages, and the kubelet its answers."""

    async def act(life: Life, _pods: Pods, port: int) -> None:
        await shows(port, "device_agent_use_current")
        slow = [await asyncio.open_connection("::1", port) for _ in range(8)]
        for _, writer in slow[:4]:
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        await shows(port, LINE, lambda: life.nvml.say_use(now()))
        for _, writer in slow:
            writer.close()

    export(tmp_path, act)


def test_an_agent_without_gpus_exports_who_has_its_files(tmp_path: Path) -> None:
    """Of any vendor."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/card0").touch()
    name = "example.com/card"
    files = f"resources:\n- name: {name}\n  groups: [{{paths: [{{path: /run/card*, type: Mount}}]}}]\n"

    async def act(life: Life, pods: Pods, port: int) -> None:
        await shows(port, "device_agent_pod_resources_current 1")
        (device,) = life.kubelet.shown[name]
        pods.run(name, device)
        expected = f'device_agent_device_allocated{{resource="{name}",device="{device}",'
        assert 'namespace="default",pod="p0",container="c"} 1' in await shows(port, expected)

    export(tmp_path, act, resource=name, before=files, config=lambda port: files + asked(port).removeprefix(PLAIN))
