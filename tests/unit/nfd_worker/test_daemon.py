"""The resident process, run for real: what wakes it, what it sends, how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from device_resources.gpu_sharing import GpuSharing, SharedResource, format_sharing
from nfd_worker.config.config import Settings
from nfd_worker.daemon import _resync_seconds
from nfd_worker.publish.publisher import CHILD_DEADLINE_SECONDS
from nfd_worker.sources.gpu import SHARING_FILE
from testbed import metrics
from testbed.ports import free_ports
from tests.nvml import DRIVER, H100, build
from tests.support.nfd_worker.trees import HOSTS
from tests.support.programs import require_program

PATIENCE = 120.0
"""Seconds: a busy machine is no fault of the worker's."""
RECORDED = HOSTS / "intel-gpu-server"
ETC = "etc/kubernetes/node-feature-discovery"
CUSTOM_RULE = "- {{name: r, labels: {{from-rule: '{}'}}, matchFeatures: [{{feature: kernel.version}}]}}"
CLUSTER_RULE = """
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: mine}
spec: {rules: [{name: r, labels: {from-cluster: "yes"}}]}
"""
TAINT_WITHOUT_MINE = """
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: mine}
spec:
  rules:
  - name: r
    labels: {lacks-mine: "true"}
    matchFeatures: [{feature: local.feature, matchExpressions: {example.com/mine: {op: DoesNotExist}}}]
"""

OTHER_SETTINGS = """
import sys
from nfd_worker.cli.main import run
from nfd_worker.config import config
first = config.load_settings
calls = []
def load(flags, environment):
    calls.append(None)
    return first({**flags, "port": "0" if len(calls) == 1 else "18619"}, environment)
import nfd_worker.cli.main
nfd_worker.cli.main.load_settings = load
sys.exit(run(sys.argv[1:], {}))
"""

WITH = """
import sys
import nfd_worker.{module}
nfd_worker.{module}.{name} = {value}
from nfd_worker.cli.main import run
sys.exit(run(sys.argv[1:], {{}}))
"""
"""A worker with another constant."""
IN_A_HURRY = WITH.format(module="config.options", name="_SHORTEST_INTERVAL", value=0.1)


class Worker:
    """A running worker whose log can be waited for."""

    def __init__(self, *flags: str, environment: dict[str, str] | None = None, code: str = "") -> None:
        start = ["-c", code] if code else ["-m", "nfd_worker"]
        command = [sys.executable, *start, "run", "--log-level", "debug", *flags]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> str:
        """Read the log up to a line in which the pattern is found."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{pattern!r} did not come:\n{''.join(self.lines)}")

    def children(self) -> list[str]:
        """Name the processes it started that are still there."""
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def wait_for_child(self) -> str:
        """Name the one process that it starts."""
        deadline = time.monotonic() + PATIENCE
        while not (children := self.children()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (child,) = children
        return child

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; fails before a publish child is given up, for which it may not wait."""
        self.process.send_signal(number)
        self.process.communicate(timeout=CHILD_DEADLINE_SECONDS - 20)
        return self.process.returncode


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """Start workers that are ended after the test; on a recorded host, when no other is given."""
    made: list[Worker] = []

    def make(*flags: str, root: Path = RECORDED, **others: Any) -> Worker:
        made.append(Worker("--root", str(root), "--port", "0", *flags, **others))
        return made[-1]

    yield make
    for worker in made:
        # Not killed at once: it ends its children first, who hold its standard error.
        worker.process.terminate()
        worker.process.communicate(timeout=PATIENCE)


class ApiServer(HTTPServer):
    """Says yes to every patch, and keeps what it was sent, and a Node.

    ``asked``: what was accepted by each read of the Node.
    """

    def __init__(self) -> None:
        self.received: list[str] = []
        self.asked: list[str] = []
        self.node: dict[str, Any] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def next(self, change: Callable[[], object]) -> str:
        """Change something; gives the body of the next request. How soon it comes is shown by bench/worker.py."""
        before, start = len(self.received), time.monotonic()
        change()
        while len(self.received) == before:
            assert time.monotonic() - start < PATIENCE, "nothing was sent"
            time.sleep(0.005)
        return self.received[before]

    def until(self, change: Callable[[], object], is_it: Callable[[str], bool]) -> None:
        """Change something, and wait until a request has the body that is wanted; what comes before does not matter."""
        before, start = len(self.received), time.monotonic()
        change()
        while not any(is_it(body.replace(" ", "")) for body in self.received[before:]):
            assert time.monotonic() - start < PATIENCE, f"not sent: {self.received[before:]}"
            time.sleep(0.005)


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self.server.asked.append(self.headers["Accept"])
        self._answer()

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(body.decode())
        self.server.node = json.loads(body)["metadata"]
        self._answer()

    def _answer(self) -> None:
        body = json.dumps({"kind": "Node", "metadata": self.server.node}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """Run an API server."""
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def access(folder: Path, port: int) -> list[str]:
    """Write a kubeconfig; gives the flags of a worker that publishes."""
    file = folder / "kubeconfig"
    file.write_text(
        f"{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {{token: t}}}}],"
        f" clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],"
        " contexts: [{name: c, context: {cluster: k, user: u}}]}"
    )
    return ["--kubeconfig", str(file), "--node-name", "n"]


def live_tree(root: Path) -> Path:
    """Make a root with this machine's /proc and a PCI bus of its own, without feature files yet."""
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "os-release").write_text("ID=test\n")
    (root / "proc").symlink_to("/proc")
    (root / "sys" / "bus" / "pci" / "devices").mkdir(parents=True)
    (root / "sys" / "bus" / "pci" / "slots").mkdir()
    return root


def plug_in(root: Path, vendor: str, address: str = "0000:01:00.0") -> None:
    """Add a GPU to the tree."""
    device = root / "sys" / "bus" / "pci" / "devices" / address
    device.mkdir(parents=True)
    for name, value in (("class", "0x030200"), ("vendor", vendor), ("device", "0x1"),
                        ("subsystem_vendor", "0x1"), ("subsystem_device", "0x1")):  # fmt: skip
        (device / name).write_text(value + "\n")


# ---------------------------------------------------------------- how it ends


def test_sigterm_ends_it_at_once_with_success(start: Callable[..., Worker]) -> None:
    """SIGTERM ends the worker with success, also between two cycles."""
    worker = start("--no-publish", "--sleep-interval", "1h")
    worker.wait_for("cycle: ")
    assert worker.end() == 0


def test_a_signal_makes_a_running_worker_log_more(
    start: Callable[..., Worker], api_server: ApiServer, tmp_path: Path
) -> None:
    """As JSON as well; what cycles do is logged at debug alone."""
    flags = ["--log-level", "info", "--log-format", "json", "--sleep-interval", "1s"]
    worker = start(*access(tmp_path, api_server.server_port), *flags)
    entry = json.loads(worker.wait_for("node n labelled"))
    assert (entry["level"], entry["logger"]) == ("info", "nfd_worker.publish.publisher")
    worker.process.send_signal(signal.SIGUSR1)
    assert json.loads(worker.wait_for("cycle: "))["level"] == "debug"
    assert "cycle: " not in "".join(worker.lines[:-1])
    assert worker.end() == 0


def test_the_metrics_say_whether_the_node_is_labelled(
    start: Callable[..., Worker], api_server: ApiServer, tmp_path: Path
) -> None:
    """1 once it is; 0 while the API server does not answer."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = start(*access(tmp_path, silent.getsockname()[1]), "--port", str(port))
        worker.wait_for("cycle: ")
        assert metrics.read(port, "nfd_worker_build_info") == 1
        assert metrics.read(port, "nfd_worker_published") == 0
        worker.end()
    worker = start(*access(tmp_path, api_server.server_port), "--port", str(port))
    worker.wait_for("node n labelled")
    assert metrics.read(port, "nfd_worker_published") == 1


def test_sigterm_while_a_publish_child_runs_leaves_no_child(start: Callable[..., Worker], tmp_path: Path) -> None:
    """The child cannot end by itself: the kernel accepts for an API server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = start(*access(tmp_path, silent.getsockname()[1]))
        # Not its connection: a child that is still importing, on a busy machine for minutes, has to end as well.
        child = worker.wait_for_child()
        assert worker.end() == 0
        assert not Path(f"/proc/{child}").exists()


def test_sigterm_while_a_gpu_scan_hangs_leaves_no_child(start: Callable[..., Worker], tmp_path: Path) -> None:
    """The driver library is a pipe that nobody writes to: the first cycle waits for the scan, the end does not."""
    root = live_tree(tmp_path / "root")
    plug_in(root, "0x10de")
    library = root / "usr" / "lib" / f"{os.uname().machine}-linux-gnu" / "libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    os.mkfifo(library)
    # The kernel ends a child that was killed when a busy machine lets it.
    patient = WITH.format(module="gpu.scan_runner", name="_DEATH_SECONDS", value=PATIENCE)
    worker = start("--no-publish", root=root, code=patient)
    child = worker.wait_for_child()
    assert worker.end() == 0
    assert not Path(f"/proc/{child}").exists()


def test_a_gpu_scan_that_hangs_does_not_keep_the_other_labels_back(
    start: Callable[..., Worker], tmp_path: Path
) -> None:
    """The first cycle waits for it a while and no longer."""
    root = live_tree(tmp_path / "root")
    plug_in(root, "0x10de")
    library = root / "usr" / "lib" / f"{os.uname().machine}-linux-gnu" / "libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    os.mkfifo(library)
    worker = start("--no-publish", root=root, code=WITH.format(module="daemon", name="FIRST_SCAN_SECONDS", value=0.3))
    worker.wait_for("cycle: ")
    assert worker.wait_for_child(), "the scan hangs on"


def test_without_an_api_server_it_goes_on_for_ever(start: Callable[..., Worker], tmp_path: Path) -> None:
    """A failed publish never ends the worker, and SIGTERM does, also then."""
    worker = start("--kubeconfig", str(tmp_path / "none"), environment={"NODE_NAME": "n"})
    worker.wait_for(r"trying again in \S+ s \(failure 2\)")
    assert worker.process.poll() is None
    assert worker.end() == 0


def test_a_taken_port_ends_it_with_a_message(start: Callable[..., Worker]) -> None:
    """Two workers on one node cannot both be probed."""
    with socket.create_server(("", 0)) as taken:
        worker = start("--no-publish", "--port", str(taken.getsockname()[1]))
        worker.wait_for("choose another with --port, or 0 for none")
    assert worker.process.wait(PATIENCE) == 2


# ---------------------------------------------------------------- what wakes it


def test_a_feature_file_is_published_long_before_the_interval_and_nothing_else_is_sent(
    start: Callable[..., Worker], tmp_path: Path, api_server: ApiServer
) -> None:
    """The directory comes only after the start; cycles in which nothing changed send nothing."""
    root = live_tree(tmp_path / "root")
    config = tmp_path / "nfd-worker.conf"
    config.write_text("{core: {sleepInterval: 1h, removalGrace: 100ms}, resyncPeriod: 0}")
    flags = [*access(tmp_path, api_server.server_port), "--config", str(config)]
    workers: list[Worker] = []
    api_server.next(lambda: workers.append(start(*flags, root=root, code=IN_A_HURRY)))
    features = root / ETC / "features.d"

    def write() -> None:
        features.mkdir(parents=True)
        (features / "mine").write_text("example.com/mine=1\n")

    api_server.next(write)
    for number in range(2, 4):
        body = api_server.next(lambda n=number: (features / "mine").write_text(f"example.com/mine={n}\n"))  # type: ignore[misc]
        assert f'"example.com/mine":"{number}"' in body.replace(" ", "")
    body = api_server.next((features / "mine").unlink)
    assert "example.com/mine" not in body
    sent = len(api_server.received)
    config.write_text("{core: {sleepInterval: 100ms, removalGrace: 100ms}, resyncPeriod: 0}")
    for _ in range(3):
        workers[0].wait_for(r"cycle: .*\(interval\)")
    api_server.next(lambda: (features / "mine").write_text("example.com/mine=4\n"))
    workers[0].wait_for("labelled")
    assert '"example.com/mine":"4"' in api_server.received[sent].replace(" ", ""), "the first that was sent"


def test_how_gpus_are_shared_is_published_long_before_the_interval(
    start: Callable[..., Worker], tmp_path: Path, api_server: ApiServer
) -> None:
    """The folder comes after the start, as with device-agent; the file is replaced, and a broken one is named."""
    require_program("gcc")
    root = live_tree(tmp_path / "root")
    plug_in(root, "0x10de")
    library = root / "usr" / "lib64"
    library.mkdir(parents=True)
    build(library)
    (tmp_path / "machine").write_text(DRIVER + H100.format(n=1))
    flags = [*access(tmp_path, api_server.server_port), "--sleep-interval", "1h", "--removal-grace", "1s"]
    workers: list[Worker] = []
    environment = {"FAKE_NVML_MACHINE": str(tmp_path / "machine")}
    file = root / SHARING_FILE

    def write(text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "new").write_text(text)
        (file.parent / "new").replace(file)

    def is_whole(body: str) -> bool:
        return '"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"' in body and "gpu.replicas" not in body

    def is_shared(number: int, body: str) -> bool:
        product = '"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3-SHARED"'
        return product in body and f'"nvidia.com/gpu.replicas":"{number}"' in body

    # On a busy machine the first request is sent without the scan of the GPUs.
    api_server.until(lambda: workers.append(start(*flags, root=root, environment=environment)), is_whole)
    for number in (4, 8):
        text = format_sharing(GpuSharing("none", {"nvidia.com/gpu": SharedResource(number, "time-slicing")}))
        api_server.until(partial(write, text), partial(is_shared, number))
    api_server.until(lambda: write("{"), is_whole)
    assert f"{SHARING_FILE}: it is not JSON" in workers[0].wait_for("labelled as if no GPU were shared")


def test_a_file_that_is_deleted_and_written_anew_keeps_its_label(
    start: Callable[..., Worker], tmp_path: Path, api_server: ApiServer
) -> None:
    """No request lacks it, and no rule finds it missing; what was added meanwhile does not wait.

    That what stays away goes is shown above.
    """
    root = live_tree(tmp_path / "root")
    features = root / ETC / "features.d"
    features.mkdir(parents=True)
    (features / "mine").write_text("example.com/mine=1\n")
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.yaml").write_text(TAINT_WITHOUT_MINE)
    flags = [*access(tmp_path, api_server.server_port), "--sleep-interval", "1h", "--removal-grace", "1h"]
    flags += ["--rules-dir", str(tmp_path / "rules.d")]
    api_server.next(lambda: start(*flags, root=root))

    def write_anew() -> None:
        (features / "mine").unlink()
        (features / "other").write_text("example.com/other=1\n")

    body = api_server.next(write_anew)
    assert "example.com/other" in body
    assert "example.com/mine" in body
    body = api_server.next(lambda: (features / "mine").write_text("example.com/mine=2\n"))
    assert '"example.com/mine":"2"' in body.replace(" ", "")
    assert all("example.com/mine" in request for request in api_server.received)
    assert not any("lacks-mine" in request for request in api_server.received)


def test_a_configuration_that_is_gone_for_a_moment_stays_in_effect(
    start: Callable[..., Worker], tmp_path: Path
) -> None:
    """Somebody replaces its ConfigMap; one that stays away counts as empty after the grace."""
    default = tmp_path / "nfd-worker.conf"
    default.write_text("core: {labelWhiteList: cstate, removalGrace: 1h}")
    of_default = WITH.format(module="config.config", name="DEFAULT_FILE", value=repr(str(default)))
    worker = start("--no-publish", "--config", str(default), "--sleep-interval", "0", code=of_default)
    worker.wait_for("cycle: 1 labels")
    default.unlink()
    worker.wait_for("cycle: 1 labels .*config")
    default.write_text("core: {labelWhiteList: cstate, removalGrace: 100ms}")
    worker.wait_for("config: .* changed")
    worker.wait_for("cycle: 1 labels .*config")
    default.unlink()
    worker.wait_for(r"cycle: \d\d+ labels .*settle")
    assert worker.end() == 0


def test_a_configuration_that_becomes_a_pipe_holds_nobody(start: Callable[..., Worker], tmp_path: Path) -> None:
    """The old settings stay in force, and SIGTERM ends it."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text("core: {sleepInterval: 1h}")
    worker = start("--no-publish", "--config", str(file))
    worker.wait_for("cycle: ")
    file.unlink()
    os.mkfifo(file)
    worker.wait_for("not reloaded, the previous settings stay in use: .* it is not a regular file")
    assert worker.end() == 0


def test_a_device_is_published_long_before_the_interval(
    start: Callable[..., Worker], tmp_path: Path, api_server: ApiServer
) -> None:
    """The kernel sends an event when told to by root, as it does when a device comes."""
    pci = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not pci or not os.access(pci[0], os.W_OK):
        pytest.skip("needs root and a PCI device")
    root = live_tree(tmp_path / "root")
    flags = [*access(tmp_path, api_server.server_port), "--sleep-interval", "1h"]
    api_server.next(lambda: start(*flags, root=root))
    for number in range(1, 4):

        def plug(number: int = number) -> None:
            plug_in(root, f"0xbe0{number}", f"0000:0{number}:00.0")
            pci[0].write_text("add")

        body = api_server.next(plug)
        assert f"pci-0302_be0{number}.present" in body


def test_rules_that_come_later_are_seen(start: Callable[..., Worker], tmp_path: Path) -> None:
    """Of the node, and of the cluster; neither directory is there at the start."""
    root = live_tree(tmp_path / "root")
    rules = tmp_path / "rules.d"
    worker = start("--no-publish", "--sleep-interval", "1h", "--rules-dir", str(rules), "--label-whitelist", "^from-",
                   "--removal-grace", "100ms", root=root)  # fmt: skip
    worker.wait_for("cycle: 0 labels")
    custom = root / ETC / "custom.d" / "team"
    custom.mkdir(parents=True)
    (custom / "rules.yaml").write_text(CUSTOM_RULE.format("yes"))
    worker.wait_for("cycle: 1 labels .*file")
    (rules / "..v1").mkdir(parents=True)
    (rules / "..v1" / "mine.yaml").write_text(CLUSTER_RULE)
    (rules / "mine.yaml").symlink_to("..data/mine.yaml")
    (rules / "..data").symlink_to("..v1")
    worker.wait_for("cycle: 2 labels .*file")
    (custom / "rules.yaml").unlink()
    worker.wait_for("cycle: 1 labels .*settle")
    assert worker.end() == 0


def test_sighup_and_a_changed_file_reload_it(start: Callable[..., Worker], tmp_path: Path) -> None:
    """A broken file leaves the old settings in force."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text("core: {labelWhiteList: pci}")
    worker = start("--no-publish", "--config", str(file), "--sleep-interval", "0")
    before = worker.wait_for("cycle: ")
    file.write_text("core: {labelWhiteList: cstate}")
    worker.wait_for("cycle: 1 labels .*config")
    file.write_text("core: {labelWhiteLust: cstate}")
    assert "did you mean core.labelWhiteList?" in worker.wait_for("not reloaded, the previous settings stay in use")
    worker.process.send_signal(signal.SIGHUP)
    worker.wait_for("cycle: 1 labels .*config")
    assert "cycle: 1 labels" not in before
    assert worker.end() == 0


def test_what_needs_a_restart_is_reported(start: Callable[..., Worker]) -> None:
    """A setting that needs a restart is logged, and its old value stays."""
    worker = start("--no-publish", "--sleep-interval", "0", code=OTHER_SETTINGS)
    worker.wait_for("cycle: ")
    worker.process.send_signal(signal.SIGHUP)
    worker.wait_for("config: port: takes effect only after a restart")
    assert worker.end() == 0


def test_a_node_that_has_lost_its_labels_gets_them_again_and_is_left_alone_else(
    start: Callable[..., Worker], tmp_path: Path, api_server: ApiServer
) -> None:
    """The worker reads the metadata of its Node now and then, and writes only if something is missing."""
    flags = [*access(tmp_path, api_server.server_port), "--sleep-interval", "0", "--resync-period", "1s"]
    workers: list[Worker] = []
    first = api_server.next(lambda: workers.append(start(*flags)))
    workers[0].wait_for("node n labelled")
    deadline = time.monotonic() + PATIENCE
    while len(api_server.asked) < 3:
        assert time.monotonic() < deadline, "the Node is not looked at"
        time.sleep(0.05)
    assert api_server.received == [first]
    assert "PartialObjectMetadata" in api_server.asked[0]
    second = api_server.next(api_server.node["labels"].popitem)
    assert second == first
    assert "labels were removed or changed" in workers[0].wait_for("check: node n")


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        pytest.param(Settings(), 300, id="five minutes"),
        pytest.param(Settings(sleep_interval=5.0), 25, id="five short intervals"),
        pytest.param(Settings(sleep_interval=float("inf")), 300, id="only on events"),
        pytest.param(Settings(resync_seconds=3600.0), 3600, id="as set"),
        pytest.param(Settings(resync_seconds=float("inf")), float("inf"), id="never"),
    ],
)
def test_a_node_is_checked_within_its_time(settings: Settings, seconds: float) -> None:
    """Not all nodes at once: each has up to an eighth less."""
    times = [_resync_seconds(settings._replace(node_name=f"n-{n}")) for n in range(100)]
    assert all(seconds * 7 / 8 <= time <= seconds for time in times)
    assert len(set(times)) > 90 or seconds == float("inf")


# ---------------------------------------------------------------- what it reports


def test_health_and_metrics_are_served(start: Callable[..., Worker]) -> None:
    """The probes of the DaemonSet ask for them."""
    (port,) = free_ports(1)
    worker = start("--no-publish", "--port", str(port))
    worker.wait_for("cycle: ")
    for path, expected in (("healthz", "ok"), ("metrics", 'nfd_worker_cycles_total{trigger="start"} 1')):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE) as response:
            assert expected in response.read().decode()
    assert worker.end() == 0


def test_a_trouble_that_stays_is_reported_once(start: Callable[..., Worker], tmp_path: Path) -> None:
    """A problem that persists is logged once."""
    rules = tmp_path / "rules.d"
    rules.mkdir()
    (rules / "bad.yaml").write_text("no: rule")
    worker = start("--no-publish", "--sleep-interval", "100ms", "--rules-dir", str(rules), code=IN_A_HURRY)
    for _ in range(3):
        worker.wait_for("cycle: ")
    told = [line.partition("WARNING")[2] for line in worker.lines if "bad.yaml" in line]
    assert told
    assert len(told) == len(set(told))


def test_oneshot_ends_after_one_cycle(start: Callable[..., Worker]) -> None:
    """Oneshot succeeds when nothing had to be published."""
    worker = start("--no-publish", "--oneshot")
    worker.wait_for("cycle: ")
    assert worker.process.wait(PATIENCE) == 0


def test_oneshot_without_an_api_server_fails(start: Callable[..., Worker], tmp_path: Path) -> None:
    """The exit status is 1, which a Job sees."""
    worker = start("--oneshot", "--kubeconfig", str(tmp_path / "none"), "--node-name", "n")
    assert worker.process.wait(PATIENCE) == 1
