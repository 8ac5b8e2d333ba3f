"""The worker against a real API server: what it owns, what it leaves alone, and how it bears the server's absence."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.testbed import Testbed

REPOSITORY = Path(__file__).parents[2]
HOSTS = REPOSITORY / "tests/data/hosts"
PREFIX = "feature.node.kubernetes.io/"
KERNEL = f"{PREFIX}kernel-version.full"
GPU = f"{PREFIX}pci-0302_10de.present"
NAMESPACE = "driverwright"
TAINT_AND_RESOURCE = """
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: mine}
spec:
  rules:
  - name: r
    taints: [{key: feature.node.kubernetes.io/mine, effect: PreferNoSchedule}]
    extendedResources: {slots: "2"}
    matchFeatures: [{feature: kernel.version}]
"""

SECONDS = 600.0
"""A worker on a busy machine takes its time."""


@pytest.fixture
def node(control_plane_ground: Testbed) -> Iterator[str]:
    """Make a Node object that somebody else has labelled, too."""
    name = f"worker-test-{time.monotonic_ns()}"
    labels = {"example.io/rack": "r1", f"{PREFIX}custom-foreign": "true"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    control_plane_ground.api.create("/api/v1/nodes", body)
    yield name
    control_plane_ground.api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy a recorded host, to change it."""
    return Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))


@pytest.fixture
def kubeconfig(control_plane_ground: Testbed, tmp_path: Path) -> Path:
    """Be the service account of deploy/nfd-worker, with the rights written there and no more."""
    api = control_plane_ground.api
    api.apply(
        f"/api/v1/namespaces/{NAMESPACE}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    places = {
        "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    }
    for obj in yaml.safe_load_all((REPOSITORY / "deploy/nfd-worker/rbac.yaml").read_text()):
        api.apply(f"{places[obj['kind']]}/{obj['metadata']['name']}", obj)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = api.create(f"{places['ServiceAccount']}/nfd-worker/token", asked)
    file = tmp_path / "worker.kubeconfig"
    file.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "users": [{"name": "it", "user": {"token": answer["status"]["token"]}}],
        "clusters": [{"name": "it", "cluster": {
            "server": control_plane_ground.api_server, "certificate-authority": str(control_plane_ground.ca_file),
        }}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }))  # fmt: skip
    return file


class Daemon:
    """A worker that runs on; its log can be waited for."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file)

    def wait_for(self, pattern: str, *, times: int = 1) -> None:
        """Wait until the pattern is found so many times in the log."""
        until(lambda: self.times(pattern) >= times, self._log.read_text)

    def log(self) -> str:
        """Give what it has logged."""
        return self._log.read_text()

    def times(self, pattern: str) -> int:
        """Count how often the pattern is found in the log."""
        return len(re.findall(pattern, self._log.read_text()))

    def end(self) -> int:
        """Ask it to end; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def until(is_true: Callable[[], bool], explain: Callable[[], str] = str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def command(root: Path, node: str, kubeconfig: Path, *flags: str) -> list[str]:
    """Make the command line of a worker."""
    given = ["--root", str(root), "--node-name", node, "--kubeconfig", str(kubeconfig), "--port", "0"]
    return [sys.executable, "-m", "nfd_worker", "run", *given, *flags]


def run_once(root: Path, node: str, kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a worker in oneshot mode."""
    argv = command(root, node, kubeconfig, "--oneshot", *flags)
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def daemon(root: Path, node: str, kubeconfig: Path, tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start workers that are ended after the test."""
    made: list[Daemon] = []

    def start(*flags: str) -> Daemon:
        made.append(Daemon(command(root, node, kubeconfig, *flags), tmp_path / f"worker-{len(made)}.log"))
        return made[-1]

    yield start
    for it in made:
        it.process.kill()
        it.process.wait()


def metadata(ground: Testbed, node: str) -> dict[str, Any]:
    """Read what is written on a Node."""
    found = ground.api.get(f"/api/v1/nodes/{node}")
    assert found is not None
    return dict(found["metadata"])


def labels(ground: Testbed, node: str) -> dict[str, str]:
    """Read a Node's labels."""
    return dict(metadata(ground, node).get("labels", {}))


def written(ground: Testbed, node: str) -> tuple[dict[str, str], list[Any]]:
    """Read a Node's labels, and what the worker has written when: the cluster's controllers write there as well."""
    found = metadata(ground, node)
    return found.get("labels", {}), [entry for entry in found["managedFields"] if entry["manager"] == "nfd-worker"]


def change(root: Path, file: str, text: str) -> None:
    """Let a file of the kernel show something else: at once, as such files do."""
    other = root / "other"
    other.write_text(text)
    other.replace(root / file)


def test_a_scan_arrives_on_the_node_and_nothing_else_changes(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """All labels, the boot id, and the labels of others, with the rights of deploy/ and no more."""
    before = labels(control_plane_ground, node)
    done = run_once(root, node, kubeconfig)
    assert done.returncode == 0, done.stderr
    expected = yaml.safe_load((HOSTS / "intel-gpu-server.labels.yaml").read_text())
    assert labels(control_plane_ground, node) == {**before, **expected}
    annotations = metadata(control_plane_ground, node)["annotations"]
    assert annotations["driverwright.io/boot-id"] == "0f5a8a0e-3a39-4f0d-8f3b-2f0bb0a2a7d1"


def test_what_is_no_longer_found_goes_and_labels_of_others_stay(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """Server-side apply removes exactly what the worker wrote and does not write any more."""
    assert run_once(root, node, kubeconfig).returncode == 0
    assert GPU in labels(control_plane_ground, node)
    for address in ("0000:19:00.0", "0000:3b:00.0"):
        shutil.rmtree(root / "sys/bus/pci/devices" / address)
    assert run_once(root, node, kubeconfig).returncode == 0
    now = labels(control_plane_ground, node)
    assert GPU not in now
    assert f"{PREFIX}pci-0300_102b.present" in now
    assert (now["example.io/rack"], now[f"{PREFIX}custom-foreign"]) == ("r1", "true")


def test_a_source_that_cannot_be_read_after_a_restart_keeps_its_labels(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """A failed read is not an absent feature, also for a worker that has just started."""
    assert run_once(root, node, kubeconfig).returncode == 0
    (root / "proc/sys/kernel/osrelease").unlink()
    (root / "etc/os-release").write_text("ID=ubuntu\nVERSION_ID=26.04\n")
    assert run_once(root, node, kubeconfig).returncode == 0
    now = labels(control_plane_ground, node)
    assert now[KERNEL] == "6.8.0-45-generic"
    assert now[f"{PREFIX}system-os_release.VERSION_ID"] == "26.04"
    (root / "proc/sys/kernel/osrelease").write_text("6.8.0-50-generic\n")
    assert run_once(root, node, kubeconfig).returncode == 0
    assert labels(control_plane_ground, node)[KERNEL] == "6.8.0-50-generic"


def test_a_node_that_does_not_exist_is_not_made(control_plane_ground: Testbed, root: Path, kubeconfig: Path) -> None:
    """A wrong node name must not put a ghost into the cluster."""
    done = run_once(root, "no-such-node", kubeconfig)
    assert done.returncode == 1
    assert "publish: " in done.stderr
    assert control_plane_ground.api.get("/api/v1/nodes/no-such-node") is None


def test_nothing_is_sent_while_nothing_changes(
    control_plane_ground: Testbed, node: str, daemon: Callable[..., Daemon]
) -> None:
    """What the worker wrote stays as it is over many cycles, and it says of none that it wrote again."""
    worker = daemon("--sleep-interval", "1s", "--log-level", "debug")
    worker.wait_for("labelled")
    before = written(control_plane_ground, node)
    assert before[1]
    worker.wait_for("cycle: ", times=4)
    assert written(control_plane_ground, node) == before
    assert worker.end() == 0
    assert worker.times("labelled") == 1


def test_a_new_kernel_and_a_changed_boot_are_published(
    control_plane_ground: Testbed, node: str, root: Path, daemon: Callable[..., Daemon]
) -> None:
    """The controller hears of a reboot even if no label changed."""
    worker = daemon("--sleep-interval", "1s")
    worker.wait_for("labelled")
    boot = "11111111-2222-3333-4444-555555555555"
    change(root, "proc/sys/kernel/random/boot_id", f"{boot}\n")
    until(lambda: metadata(control_plane_ground, node)["annotations"]["driverwright.io/boot-id"] == boot)
    change(root, "proc/sys/kernel/osrelease", "6.9.0-1-generic\n")
    until(lambda: labels(control_plane_ground, node)[KERNEL] == "6.9.0-1-generic")
    assert worker.end() == 0


def test_a_node_that_joins_late_or_is_made_anew_is_labelled(
    control_plane_ground: Testbed, node: str, daemon: Callable[..., Daemon]
) -> None:
    """The worker says that it is missing, and goes on."""
    path, api = f"/api/v1/nodes/{node}", control_plane_ground.api
    api.delete(path)
    worker = daemon("--sleep-interval", "1s")
    worker.wait_for(f"node {node} does not exist")
    api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    worker.wait_for("labelled")
    assert GPU in labels(control_plane_ground, node)
    assert worker.end() == 0


def checking(daemon: Callable[..., Daemon], *flags: str) -> Daemon:
    """Start a worker that labels its Node, and looks at it every second."""
    worker = daemon(
        "--sleep-interval", "1h", "--resync-period", "1s", "--removal-grace", "1s", "--log-level", "debug", *flags
    )
    worker.wait_for("labelled")
    return worker


def patch(ground: Testbed, node: str, body: dict[str, Any], subresource: str = "") -> None:
    """Be somebody else, who changes a Node."""
    path = f"/api/v1/nodes/{node}{subresource}"
    ground.api.request(path, method="PATCH", body=body, kind="application/merge-patch+json")


def test_a_node_that_is_created_anew_while_the_worker_lives_is_labelled_again(
    control_plane_ground: Testbed, node: str, daemon: Callable[..., Daemon]
) -> None:
    """Whether the worker finds it missing in between or not."""
    api, path = control_plane_ground.api, f"/api/v1/nodes/{node}"
    worker = checking(daemon)
    before = metadata(control_plane_ground, node)
    for turn in range(1, 3):
        api.delete(path)
        if turn == 2:
            worker.wait_for("the Node object was deleted")
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        until(lambda: GPU in labels(control_plane_ground, node), worker.log)
        after = metadata(control_plane_ground, node)
        assert after["uid"] != before["uid"]
        assert after["annotations"]["driverwright.io/boot-id"] == before["annotations"]["driverwright.io/boot-id"]
        assert before["labels"].items() - after["labels"].items() == {
            ("example.io/rack", "r1"), (f"{PREFIX}custom-foreign", "true"),
        }, "of others alone"  # fmt: skip
    assert worker.end() == 0


def test_what_others_take_from_a_node_comes_back_and_nothing_is_written_else(
    control_plane_ground: Testbed, node: str, daemon: Callable[..., Daemon]
) -> None:
    """A label removed by hand, one changed, and an object replaced by one without labels and owners."""
    api, path = control_plane_ground.api, f"/api/v1/nodes/{node}"
    worker = checking(daemon)
    before = labels(control_plane_ground, node)
    unwritten = written(control_plane_ground, node)
    worker.wait_for(r"cycle: .*resync", times=4)
    assert written(control_plane_ground, node) == unwritten
    patch(control_plane_ground, node, {"metadata": {"labels": {GPU: None, KERNEL: "wrong"}}})
    until(lambda: labels(control_plane_ground, node) == before, worker.log)
    # What is taken while it still writes comes back with the rest.
    worker.wait_for("labelled", times=2)
    found = api.get(path)
    assert found is not None
    found["metadata"] = {"name": node, "labels": {"example.io/rack": "r1"}, "managedFields": [{}]}
    api.request(path, method="PUT", body=found)
    until(lambda: GPU in labels(control_plane_ground, node), worker.log)
    until(lambda: bool(written(control_plane_ground, node)[1]), worker.log)
    # The Node has it before the worker says so.
    worker.wait_for("labels were removed or changed", times=2)
    # What it owns again it can remove again.
    assert worker.end() == 0
    assert worker.times("labels were removed or changed") == 2


def test_taints_and_extended_resources_come_back(
    control_plane_ground: Testbed, node: str, tmp_path: Path, daemon: Callable[..., Daemon]
) -> None:
    """A kubelet that restarts sets the resources to 0; somebody removes the taint."""
    rules = tmp_path / "rules.d"
    rules.mkdir()
    (rules / "mine.yaml").write_text(TAINT_AND_RESOURCE)
    worker = checking(daemon, "--rules-dir", str(rules), "--enable-taints=true")

    def has_both() -> bool:
        found = control_plane_ground.api.get(f"/api/v1/nodes/{node}") or {}
        taints = [taint["key"] for taint in found["spec"].get("taints", [])]
        sizes = [found["status"].get(part, {}).get(f"{PREFIX}slots") for part in ("capacity", "allocatable")]
        return f"{PREFIX}mine" in taints and sizes == ["2", "2"]

    assert has_both()
    zero = {f"{PREFIX}slots": "0"}
    patch(control_plane_ground, node, {"status": {"capacity": zero, "allocatable": zero}}, "/status")
    until(has_both, worker.log)
    patch(control_plane_ground, node, {"spec": {"taints": None}})
    until(has_both, worker.log)
    record = {"driverwright.io/taints": None, "driverwright.io/extended-resources": None}
    patch(control_plane_ground, node, {"metadata": {"annotations": record}})
    until(lambda: record.keys() <= metadata(control_plane_ground, node)["annotations"].keys(), worker.log)
    (rules / "mine.yaml").unlink()
    worker.process.send_signal(signal.SIGHUP)
    until(lambda: not has_both(), worker.log)
    assert worker.end() == 0


def test_a_worker_killed_at_any_moment_is_continued_by_the_next(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path, daemon: Callable[..., Daemon]
) -> None:
    """Neither a half-done write nor a child that outlives it does harm."""
    for tenths in range(2, 20, 3):
        (root / "proc/sys/kernel/osrelease").write_text(f"6.8.0-{tenths}-generic\n")
        worker = daemon("--sleep-interval", "1s")
        time.sleep(tenths / 10)
        worker.process.kill()
        worker.process.wait()
    (root / "proc/sys/kernel/osrelease").write_text("6.8.0-99-generic\n")
    assert run_once(root, node, kubeconfig).returncode == 0
    time.sleep(2)
    assert labels(control_plane_ground, node)[KERNEL] == "6.8.0-99-generic"


def test_unpublishing_takes_everything_back(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """One command, with the worker's own rights."""
    before = labels(control_plane_ground, node)
    assert run_once(root, node, kubeconfig).returncode == 0
    assert labels(control_plane_ground, node) != before
    argv = [sys.executable, "-m", "nfd_worker", "unpublish", "--node-name", node, "--kubeconfig", str(kubeconfig)]
    for _ in range(2):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        assert labels(control_plane_ground, node) == before
        assert "driverwright.io/boot-id" not in metadata(control_plane_ground, node).get("annotations", {})


def test_the_worker_takes_over_only_with_the_flag(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """What upstream tracked and the worker does not find goes."""
    tracked = {"nfd.node.kubernetes.io/feature-labels": "custom-foreign"}
    control_plane_ground.api.request(
        f"/api/v1/nodes/{node}",
        method="PATCH",
        body={"metadata": {"annotations": tracked}},
        kind="application/merge-patch+json",
    )
    assert run_once(root, node, kubeconfig).returncode == 0
    assert f"{PREFIX}custom-foreign" in labels(control_plane_ground, node)
    done = run_once(root, node, kubeconfig, "--take-over=true")
    assert done.returncode == 0, done.stderr
    assert "adopted the node" in done.stderr
    assert f"{PREFIX}custom-foreign" not in labels(control_plane_ground, node)
    assert not tracked.keys() & metadata(control_plane_ground, node)["annotations"].keys()


def test_the_worker_outlives_the_api_server(
    control_plane_ground: Testbed, node: str, root: Path, daemon: Callable[..., Daemon]
) -> None:
    """It waits, and publishes what is true when the server is back."""
    worker = daemon("--sleep-interval", "1s")
    worker.wait_for("labelled")
    # In an orderly way it waits twenty seconds for those who watch.
    control_plane_ground.control_plane.kill("kube-apiserver")
    try:
        change(root, "proc/sys/kernel/osrelease", "6.9.0-2-generic\n")
        worker.wait_for(r"trying again in \S+ s \(failure 2\)")
        assert worker.process.poll() is None
        change(root, "proc/sys/kernel/osrelease", "6.9.0-3-generic\n")
    finally:
        control_plane_ground.control_plane.start("kube-apiserver")
    # A child that was about to publish the one before may do so yet.
    until(lambda: labels(control_plane_ground, node)[KERNEL] == "6.9.0-3-generic")
    assert worker.end() == 0


def test_a_label_removed_by_hand_comes_back_with_the_next_worker(
    control_plane_ground: Testbed, node: str, root: Path, kubeconfig: Path
) -> None:
    """Applying the same again repairs it."""
    assert run_once(root, node, kubeconfig).returncode == 0
    patch = json.dumps({"metadata": {"labels": {GPU: None, KERNEL: "wrong"}}})
    control_plane_ground.api.request(
        f"/api/v1/nodes/{node}", method="PATCH", body=json.loads(patch), kind="application/merge-patch+json"
    )
    assert GPU not in labels(control_plane_ground, node)
    assert run_once(root, node, kubeconfig).returncode == 0
    now = labels(control_plane_ground, node)
    assert (now[GPU], now[KERNEL]) == ("true", "6.8.0-45-generic")


def test_the_parent_stays_small_while_it_publishes(node: str, daemon: Callable[..., Daemon]) -> None:
    """The client's memory goes with the child."""
    assert node
    worker = daemon("--sleep-interval", "1s")
    worker.wait_for("labelled")
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident < 22 * 1024
