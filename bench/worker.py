"""How light the labeler is: memory, CPU time a cycle, start-up, bytes sent while nothing changes.

``python bench/worker.py`` runs the real resident process for some cycles, with the publish child against a loopback API
server that accepts everything. Ratios are against the figures that Node Feature Discovery's own measurements gave for
its worker while publishing: 39.2 MiB resident, 6.4 ms of CPU a cycle.
"""

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

UPSTREAM_RESIDENT_MIB = 39.2
UPSTREAM_CPU_MS = 6.4

CYCLES = 20

SCAN = """
import json, time
from nfd_worker.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.host import Host
host, good = Host("/"), {}
for _ in range(5):
    good = run_cycle(host, Settings(), good).last_good
start = time.process_time()
for _ in range(200):
    report = run_cycle(host, Settings(), good)
print(json.dumps([(time.process_time() - start) / 200, len(report.labels)]))
"""


class Accepting(BaseHTTPRequestHandler):
    """An API server that says yes and counts what it is sent."""

    received = 0
    requests = 0

    def do_PATCH(self) -> None:
        """Count a patch."""
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        Accepting.received += size
        Accepting.requests += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Measure and print."""
    server = HTTPServer(("127.0.0.1", 0), Accepting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(server.server_port))
        resident = _measure_resident(kubeconfig)
    cpu_seconds, labels = json.loads(_python(SCAN))
    cpu_ms = cpu_seconds * 1000
    print(f"labels on this machine           {labels}")
    print(f"RSS after {CYCLES} cycles and a publish {_ratio(resident['Rss:'], UPSTREAM_RESIDENT_MIB, 'MiB')}")
    print(f"PSS                              {resident['Pss:']:.1f} MiB")
    print(f"CPU of a cycle                   {_ratio(cpu_ms, UPSTREAM_CPU_MS, 'ms')}")
    print(f"import of the resident process   {_import_ms('nfd_worker.cli'):.0f} ms")
    print(f"import of the publish child      {_import_ms('nfd_worker.publish'):.0f} ms")
    print(f"publishes in {CYCLES} cycles            {Accepting.requests} ({Accepting.received} bytes)")
    print(f"bytes sent by an unchanged cycle {resident['bytes_unchanged']:.0f}")


def _measure_resident(kubeconfig: Path) -> dict[str, float]:
    """Run the worker for some cycles; gives Rss and Pss in MiB, and the bytes sent after the first publish."""
    flags = ["--kubeconfig", str(kubeconfig), "--node-name", "bench", "--port", "0", "--sleep-interval", "1s"]
    command = [sys.executable, "-m", "nfd_worker", "run", *flags]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while Accepting.requests == 0:
            time.sleep(0.1)
        first = Accepting.received
        time.sleep(CYCLES)
        rollup = Path(f"/proc/{worker.pid}/smaps_rollup").read_text().splitlines()
        sizes = {name: float(size) / 1024 for name, size, *_ in map(str.split, rollup) if name in ("Rss:", "Pss:")}
        return {**sizes, "bytes_unchanged": float(Accepting.received - first)}
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


def _import_ms(module: str) -> float:
    """Measure how long an import takes in a fresh interpreter: the best of five."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return min(float(_python(code)) for _ in range(5)) * 1000


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def _ratio(ours: float, upstream: float, unit: str) -> str:
    return f"{ours:.1f} {unit}, {upstream / ours:.1f} times less than upstream's {upstream} {unit}"


def _kubeconfig(port: int) -> str:
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    })  # fmt: skip


if __name__ == "__main__":
    main()
