"""What device-agent's pod weighs with all of its parts at once, beside one process of pynvml and prometheus_client.

``python bench/device_agent_pod.py`` is a node with eight NVIDIA GPUs in MIG mode, whose 56 instances pods share, and a
whole one, which pods share as well. The agent has a token, with which it follows its Node on a server with TLS
in place of an API server, and answers it: a profile by its label, and a MIG layout by another one, which the container
``nvml`` (a supervisor and its child) makes on the last GPU. It has an exporter of pods' use, and ``memory.mode:
driver``: the driver keeps the limits of the pods on the whole GPU. NVML, the kubelet, the reference and what is printed
are those of ``bench/device_agent_exporter.py``. The status is 1 where the pod has more than 48 MiB, as PSS.
"""

import asyncio
import json
import queue
import ssl
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.device_agent_exporter import (  # noqa: E402
    INSTANCES,
    MOST_POD,
    REFERENCE,
    SHARES,
    Found,
    Node,
    agent,
    exporter,
    kubelet,
    lines,
    measure_nvml,
    nvml,
    total,
    wait_for_pods,
)
from bench.device_agent_memory import START, child_of, running  # noqa: E402
from kube_api.names import GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL  # noqa: E402
from testbed.pki import CertificateAuthority  # noqa: E402
from testbed.ports import free_ports  # noqa: E402
from tests.unit.device_agent.node.test_mig_state import VersionedServer  # noqa: E402
from tests.unit.device_agent.nvml_container.running import wait_for  # noqa: E402

GPUS, MIG_GPUS = 1, 8
REST_SECONDS = 60.0
"""Longer than five looks at the GPUs and twenty samples of their use."""
SCRAPES = 100
NVIDIA = "{migStrategy: mixed, mig: {enabled: true, drain: true}}"
KEY = "sevens"
_WITH_ACCOUNT = """
sys.modules["yaml._yaml"] = None
import os, kube_api.credentials
kube_api.credentials.SERVICE_ACCOUNT = os.environ["ACCOUNT"]
"""
"""An agent whose account is in another folder, without libyaml, which the image does not have."""
START_WITH_TOKEN = START.replace("\nfrom device_agent", f"{_WITH_ACCOUNT}from device_agent")


class Api:
    """A server with TLS that has one Node, and the account of a pod that may write it."""

    def __init__(self, folder: Path) -> None:
        labels = {GPU_PROFILE_LABEL: "default", MIG_CONFIG_LABEL: KEY}
        self.cluster = VersionedServer(node={"metadata": {"name": "n", "uid": "u", "labels": labels}})
        authority = CertificateAuthority(folder / "ca")
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text("token")
        (self.account / "ca.crt").write_bytes(authority.file.read_bytes())
        pair = authority.issue_files("server", "api", hosts=["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.with_suffix(".crt"), pair.with_suffix(".key"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._server.server_port),
            "ACCOUNT": str(self.account),
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster, lock = self.cluster, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode() or None
                with lock:
                    found = cluster.send(self.command, self.path, body=body, headers={}, timeout=1.0)
                self.send_response(found.status)
                if found.lines is None:
                    self.send_header("Content-Length", str(len(found.read())))
                    self.end_headers()
                    self.wfile.write(found.read())
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with suppress(queue.Empty, OSError):  # the agent lists and watches again
                    for line in found.chunks():
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.close_connection = True

            do_GET = do_PATCH = do_POST = answer  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Answer."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            self.cluster.watch.put(None)
            self._server.shutdown()
            self._server.server_close()

    def has_settled(self) -> bool:
        """Return whether profile and layout are what the labels ask for."""
        labels = self.cluster.labels
        return labels.get(MIG_STATE_LABEL) == "success" and labels.get(GPU_PROFILE_STATE_LABEL) == "success"


def main() -> int:
    """Measure and print; returns the exit status."""
    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(measure(Path(name), GPUS, MIG_GPUS, REST_SECONDS, SCRAPES))
    for line in lines(found, most_pod=f"; at most {MOST_POD:.0f} as PSS", most_nvml=""):
        print(line)
    return int(total(found.ours.weights) > MOST_POD)


async def measure(folder: Path, gpus: int, mig: int, rest: float, scrapes: int) -> Found:
    """Measure on so many whole GPUs, and so many in MIG mode. ``rest``: seconds until processes are weighed."""
    node, api = Node(folder, gpus, mig), Api(folder)
    prepare(node, gpus, mig)
    by_itself = await asyncio.to_thread(measure_nvml, node, rest)
    port, other = free_ports(2)
    node.write_configuration(port, NVIDIA, "driver")
    node.environment |= api.environment
    library_path = (json.dumps([sysconfig.get_path("purelib")]), str(node.library), str(other))
    script = str(REPOSITORY / "bench/device_agent_parts/exporter_reference.py")
    layouts = f"--mig-config={folder}/layouts"
    async with kubelet(node):
        with (
            api.serve(),
            nvml(node) as supervisor,
            agent(node, layouts, start=START_WITH_TOKEN) as resident,
            running(script, *library_path, environment=node.environment) as reference,
        ):
            await asyncio.to_thread(wait_for, api.has_settled, "the layout")
            await asyncio.to_thread(wait_for, lambda: len(node.machine.limits()) == gpus * SHARES, "the limits")
            await asyncio.to_thread(wait_for_pods, port, len(node.pods))
            instances = sum(len(node.machine.mig.gpu(node.machine.uuid(gpus + at)).instances) for at in range(mig))
            assert instances == mig * INSTANCES
            await asyncio.sleep(rest)
            processes = {"agent": resident, "nvml, supervisor": supervisor, "nvml, child": child_of(supervisor)}
            ours = await asyncio.to_thread(exporter, processes, port, scrapes)
            theirs = await asyncio.to_thread(exporter, {REFERENCE: reference.pid}, other, scrapes)
    return Found(by_itself, ours, theirs)


def prepare(node: Node, gpus: int, mig: int) -> None:
    """Let the driver keep limits on whole GPUs, have cgroups of pods, and a file of layouts."""
    cgroups = node.root / "sys/fs/cgroup"
    cgroups.mkdir(parents=True)
    (cgroups / "cgroup.controllers").touch()
    for process in node.files.proc.iterdir():
        folder = (process / "cgroup").read_text().strip().removeprefix("0::/")
        (cgroups / folder).mkdir(parents=True, exist_ok=True)
    with node.machine.at_once():
        for gpu in range(gpus):
            node.machine.set(gpu, "limits", 1)
    whole, sliced = [*range(gpus)], [*range(gpus, gpus + mig)]
    layout = [
        {"devices": whole, "mig-enabled": False},
        {"devices": sliced, "mig-enabled": True, "mig-devices": {"1g.5gb": INSTANCES}},
    ]
    (node.folder / "layouts").mkdir()
    (node.folder / "layouts/config.yaml").write_text(json.dumps({"version": "v1", "mig-configs": {KEY: layout}}))
    node.environment |= {"DEVICE_AGENT_ENDS_PROCESSES": "true", "DEVICE_AGENT_CHANGES_MIG": "true"}


if __name__ == "__main__":
    sys.exit(main())
