"""A real Prometheus asks what an exporter writes: it answers the dashboard of devices, and the rules on devices hold.

What needs an hour is shown by promtool (``tests/data/alerts/devices.yaml``). No API server is needed.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from device_agent.exporter.labels import Host
from device_agent.exporter.ours import Health
from device_agent.exporter.page import render_health, render_use
from device_agent.gpu_state.use import VALUES, Use, XidCount
from device_agent.metrics import write
from testbed.packages import why_unsupported
from tests.support import monitoring
from tests.support.real_parts.prometheus import Prometheus, prometheus
from tests.unit.device_agent.usage.examples import MIB, amd, card, held, instance, process

PATIENCE = 180.0
"""Seconds: a busy machine is no fault of a query."""
TARGET = {"namespace": "driverwright", "pod": "device-agent-x7k2p", "container": "device-agent"}
TROUBLE = {**dict.fromkeys(VALUES, 1.0), "throttle": 0xFF, "memory_used": 1000 * MIB, "memory_total": 1001 * MIB,
           "memory_free": MIB}  # fmt: skip
RAISED = {
    *("GpuLost", "GpuXidWantsReset", "GpuThrottled", "GpuMemoryFull"),
    *("DeviceMemoryKills", "DeviceMemoryOverLimit"),
}

pytestmark = pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))


class Exporter:
    """What is asked: cards in trouble, of which the first one is lost after a while."""

    is_lost = False

    def text(self) -> str:
        """Write the page as an exporter does."""
        cards = [
            card(0, values=TROUBLE),
            card(1, process("p1", 300 * MIB, 20), process("p2", 200 * MIB, 10, pid=2), values=TROUBLE),
            card(2, values=TROUBLE),
            instance(1, 2, values={"memory_used": 100 * MIB, "memory_total": 200 * MIB, "engine_active": 0.25}),
            amd(3),
        ]
        pods = tuple(f"default/p{number}" for number in range(3))
        use = Use("s1", 1.0, tuple(cards[self.is_lost :]), (XidCount("GPU-1", 79, 2),), pods)
        devices = [held("GPU-0", "p0"), held("GPU-1::0", "p1"), held("GPU-1::1", "p2")]
        text, _ = render_use(use, devices, Host("Hostname", "node-1"))
        limits = [
            (f"memory_{name}", kind, "Of the pod.", [({"UUID": "GPU-1", "namespace": "default", "pod": "p1"}, value)])
            for name, kind, value in (
                ("limit_bytes", "gauge", 200 * MIB), ("used_bytes", "gauge", 300 * MIB), ("kills_total", "counter", 1)
            )
        ]  # fmt: skip
        return text + write(limits) + render_health(Health(1.0, True, True, True, 0))


@contextmanager
def served(exporter: Exporter) -> Iterator[int]:
    """Answer with the page on a port, which is returned."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(exporter.text().encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that asks it as a PodMonitor with ``honorLabels`` says; then let the first card be lost."""
    exporter, folder = Exporter(), tmp_path_factory.mktemp("prometheus")
    with served(exporter) as port, prometheus(folder, [port], monitoring.DEVICE_ALERTS, honoring=TARGET) as running:
        until(lambda: bool(running.query('device_agent_gpu_memory_total_bytes{UUID="GPU-0"}')))
        exporter.is_lost = True
        yield running


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.5)


def raised(server: Prometheus) -> set[str]:
    """Return the alerts that are pending or firing; what is recorded has no state."""
    return {name for name, rule in server.rules().items() if rule.get("state", "inactive") != "inactive"}


def queries() -> Iterator[str]:
    """Return the queries of the dashboard, but for those of what is recorded after an hour."""
    for panel in monitoring.panels(monitoring.DEVICE_DASHBOARD):
        for target in panel["targets"]:
            if "card_idle" not in target["expr"]:
                yield target["expr"].replace("$node", ".*").replace("$namespace", ".*")


@pytest.mark.parametrize("expr", list(queries()))
def test_every_query_of_the_dashboard_is_answered(server: Prometheus, expr: str) -> None:
    """With a number."""
    until(lambda: any(not math.isnan(float(series["value"][1])) for series in server.query(expr)))


def test_alerts_are_raised_by_what_an_exporter_says(server: Prometheus) -> None:
    """Pending or firing, by the rules as they are; no rule fails on the labels that the series have."""
    until(lambda: raised(server) == RAISED)
    assert {name: rule.get("lastError") for name, rule in server.rules().items() if rule["health"] != "ok"} == {}
    (lost,) = server.query('ALERTS{alertname="GpuLost"}')
    assert (lost["metric"]["UUID"], lost["metric"]["Hostname"]) == ("GPU-0", "node-1")


def test_what_a_namespace_has_is_counted_for_it_and_not_for_the_exporters(server: Prometheus) -> None:
    """Two shares of a card are two devices of their resource."""
    expr = "namespace_resource:device_agent_device_hours:1h"
    until(lambda: {series["metric"]["namespace"] for series in server.query(expr)} == {"default"})
    hours = {series["metric"]["resource"]: float(series["value"][1]) for series in server.query(expr)}
    assert hours["nvidia.com/gpu.shared"] == 2 * hours["nvidia.com/gpu"]
