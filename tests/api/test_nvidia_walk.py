"""docs/nvidia-from-zero.md, command by command: each prints what the page says.

API server, controller manager, scheduler and kubectl are real, and so is the agent of one node. Its GPUs are made up.
What a node's kubelet, nfd-worker and driver-builder would do is played.
"""

import asyncio
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from device_agent.gpu_state.state import State
from device_agent.node.own_node import OwnNode
from kube_api.names import MIG_ANNOTATION, MIG_STATE_LABEL, ready_label
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES
from testbed.testbed import Testbed
from tests.support.console import ROOT, Said, alike, session
from tests.support.real_parts.cluster_setup import Json, admin, as_service_account, connect_as_agent, install
from tests.support.real_parts.scheduled_nodes import ScheduledNodes
from tests.unit.device_agent.nvidia.life import Life, play
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import card, nodes, split, state
from tests.unit.device_agent.nvidia.test_profiles_in_use import mount, shared

pytestmark = pytest.mark.long

PAGE = "docs/nvidia-from-zero.md"
NAMESPACE, DRIVER, PROFILES, SHIFT = "driverwright", "nvidia", "gpu-profiles", "gpu-shift"
GPU = "nvidia.com/gpu"
ASKS_FOR_LAYOUT = "kubectl label node gpu-1 nvidia.com/mig.config="
LAYOUTS = {
    "balanced-on-one": (split(0, "1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"), *(card(number) for number in (1, 2, 3))),
    "all-disabled": tuple(card(number) for number in range(4)),
}
"""What the cards of ``gpu-1`` are by a key of the page's layouts."""
APPLIES_DRIVER = "kubectl apply -f examples/nvidia/driver-container.yaml"
HAS_CARD = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
PATIENCE = 180.0
"""Seconds until what is read has to be as the page says."""
CRON_JOBS, POLICIES = 21, 30
"""The first releases with CronJobs of ``batch/v1``, and with admission policies."""
LEFT = """
kubectl delete --ignore-not-found --wait=false namespace training inference
kubectl delete --ignore-not-found --wait=false pod first slice
kubectl delete --ignore-not-found priorityclass gpu-training gpu-inference
kubectl delete --ignore-not-found clusterrole,clusterrolebinding gpu-user gpu-server
kubectl -n driverwright delete --ignore-not-found drivercontainer nvidia
kubectl -n driverwright delete --ignore-not-found cronjob,job gpu-day gpu-night gpu-day-now
kubectl -n driverwright delete --ignore-not-found role,rolebinding gpu-shift
kubectl -n driverwright delete --ignore-not-found serviceaccount gpu-shift gpu-profiles
kubectl -n driverwright delete --ignore-not-found configmap gpu-profiles
"""

WITHOUT_POLICIES = """
import sys, yaml
yaml.safe_dump_all([one for one in yaml.safe_load_all(sys.stdin) if "Policy" not in one["kind"]], sys.stdout)
"""


class Walk:
    """Somebody at a shell who follows the page, in a copy of the examples."""

    def __init__(self, ground: Testbed, folder: Path) -> None:
        self.ground = ground
        self.client = admin(ground)
        self.folder = folder
        self.nodes = ScheduledNodes(ground, self.client, self._work)
        self._minor = ground.binaries.minor
        self._cards: queue.SimpleQueue[State] = queue.SimpleQueue()
        shutil.copytree(ROOT / "examples", folder / "examples")
        if self._minor < CRON_JOBS:
            shift = folder / "examples/nvidia/shift.yaml"
            shift.write_text(shift.read_text().replace("apiVersion: batch/v1\n", "apiVersion: batch/v1beta1\n"))
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(ground.kubeconfig),
            "HOME": str(folder),
            "WITH_POLICIES": "yes" if self._minor >= POLICIES else "",
            "PYTHONPATH": str(ROOT),
            "PATH": os.pathsep.join((str(_programs(folder)), str(ground.binaries.folder), os.environ["PATH"])),
        }

    def shell(self, script: str) -> str:
        """Run a script; return what a person sees, errors too."""
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, timeout=PATIENCE, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.stdout

    def follow(self, steps: Sequence[Said]) -> None:
        """Run each command; what only reads, or is refused, is run until it prints what the page says."""
        for command, printed in steps:
            expected = alike(self._of_this_server(printed))
            end = time.monotonic() + PATIENCE
            while alike(seen := self.shell(command)) != expected:
                assert _is_repeatable(command, printed), f"{command}\nprinted\n{seen}\nand not\n{printed}"
                assert time.monotonic() < end, f"{command}\nlast printed\n{seen}\nand not\n{printed}"
                time.sleep(0.5)
            if command == APPLIES_DRIVER:
                self._prove_driver()
            if command.startswith(ASKS_FOR_LAYOUT):
                self._make_layout(command.removeprefix(ASKS_FOR_LAYOUT).split()[0])

    def _of_this_server(self, printed: str) -> str:
        lines = printed.splitlines()
        if self._minor < POLICIES:
            lines = [line for line in lines if not line.startswith("validatingadmissionpolicy")]
        return "\n".join(lines)

    def _prove_driver(self) -> None:
        """Write what driver-builder writes, once the driver is proven on both nodes."""
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER, subresource="status")
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "2 of 2 nodes ready"}
        self.client.patch(path, {"status": {"conditions": [ready]}})
        ready_key = ready_label(NAMESPACE, DRIVER)
        stages = {ready_key.replace(".ready", f".{stage}"): "true" for stage in ("valid", "run", "plug", "plgok")}
        for name in ("gpu-1", "gpu-2"):
            body = {"metadata": {"labels": {ready_key: "535.261.03", **stages}}}
            self.client.patch(NODES.path(name=name), body)
        self.nodes.offer("gpu-2", {GPU: 4})

    def _make_layout(self, key: str) -> None:
        """Answer as the agent does after a change, and let the container ``nvml`` report the cards."""
        record = {"asked": key, "applied": key, "step": "", "before": {}, "message": ""}
        metadata = {"labels": {MIG_STATE_LABEL: "success"}, "annotations": {MIG_ANNOTATION: json.dumps(record)}}
        self.client.patch(NODES.path(name="gpu-1"), {"metadata": metadata})
        seen = nodes(*range(8), caps=[f"gpu0/mig/gi{gi}{ci}/access" for gi in range(1, 5) for ci in ("", "/ci0")])
        self._cards.put(state(*LAYOUTS[key], at=time.monotonic() + 1000, nodes=seen))

    def _work(self, pod: Json) -> bool:
        """Run what a pod of the account of shifts runs, by that account's token."""
        if pod["spec"].get("serviceAccountName") != SHIFT:
            return False
        (container,) = pod["spec"]["containers"]
        said: list[str] = [*container["command"], *container["args"]]
        assert said[0] == "kubectl"
        as_service_account(self.ground, NAMESPACE, SHIFT)
        token = self.ground.ca_file.with_name(f"token-{NAMESPACE}-{SHIFT}").read_text()
        connection = [f"--server={self.ground.api_server}", f"--certificate-authority={self.ground.ca_file}"]
        command = [str(self.ground.binaries.path("kubectl")), *connection, f"--token={token}", *said[1:]]
        environment = {"HOME": str(self.folder / "nowhere"), "KUBECONFIG": "/dev/null", "PATH": os.environ["PATH"]}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        print(f"{pod['metadata']['name']}: {done.stdout}{done.stderr}")
        return done.returncode == 0

    async def be_kubelet(self, life: Life) -> None:
        """Show on the Node what the agent's list has, and mount the profiles as they are in the cluster."""
        shown: dict[str, int] = {}
        mounted: dict[str, str] = {}
        while True:
            healthy = {name: count for name, (count, _) in life.kubelet.counts().items()}
            if healthy != shown:
                await asyncio.to_thread(self.nodes.offer, "gpu-1", healthy)
                shown = healthy
            while not self._cards.empty():
                life.nvml.show(self._cards.get_nowait())
            data = await asyncio.to_thread(self.profiles)
            if data != mounted:
                mount(life.folder / "profiles", **data)
                mounted = data
            await asyncio.sleep(0.3)

    def profiles(self) -> dict[str, str]:
        """Read the ConfigMap."""
        data: dict[str, str] = self.client.get(CONFIG_MAPS.path(namespace=NAMESPACE, name=PROFILES))["data"]
        return data


def _programs(folder: Path) -> Path:
    """Make the program that the page calls; on servers without policies none of them is printed."""
    programs = folder / "bin"
    programs.mkdir()
    agent, without = f"'{sys.executable}' -m device_agent", f"'{sys.executable}' '{programs}/without_policies.py'"
    (programs / "without_policies.py").write_text(WITHOUT_POLICIES)
    (programs / "device-agent").write_text(f"""#!/bin/sh
case "$1$WITH_POLICIES" in
admission-policy) {agent} "$@" | {without} ;;
*) exec {agent} "$@" ;;
esac
""")
    (programs / "device-agent").chmod(0o755)
    return programs


def _is_repeatable(command: str, printed: str) -> bool:
    """Tell whether a command changes nothing."""
    words = [word for word in command.split() if word not in ("-n", NAMESPACE, "training", "inference")]
    return printed.startswith("Error ") or words[:2] in (["kubectl", "get"], ["kubectl", "auth"])


@pytest.fixture
def walk(scheduling_ground: Testbed, tmp_path: Path) -> Iterator[Walk]:
    """Make the cluster in which the page begins: driverwright is installed, and nodes are labelled."""
    made = Walk(scheduling_ground, tmp_path)
    install(made.client)
    made.nodes.add("cpu-1", {})
    for name in ("gpu-1", "gpu-2"):
        made.nodes.add(name, {}, labels=HAS_CARD)
    made.nodes.start()
    yield made
    made.shell(LEFT)
    made.nodes.stop()


def test_each_command_prints_what_the_page_says(walk: Walk) -> None:
    """From labels to slices by the clock."""
    steps = session(PAGE)
    begin = [command for command, _ in steps].index(APPLIES_DRIVER)
    walk.follow(steps[:begin])
    client = connect_as_agent(walk.ground, f"{NAMESPACE}/{PROFILES}", walk.folder)

    with tempfile.TemporaryDirectory() as name:  # a short name, for sockets
        folder = Path(name)
        pods = Pods(folder)
        mount(folder / "profiles", **walk.profiles())

        async def act(life: Life) -> None:
            await pods.start()
            await life.nvml.start(state())
            kubelet = asyncio.create_task(walk.be_kubelet(life))
            try:
                following = asyncio.create_task(asyncio.to_thread(walk.follow, steps[begin:]))
                await asyncio.wait([kubelet, following], return_when=asyncio.FIRST_COMPLETED)
                assert following.done(), kubelet.exception()
                await following
            finally:
                kubelet.cancel()
                await pods.stop()

        play(
            folder, act, config="nvidia: {migStrategy: mixed}\n",
            settings=shared(folder)._replace(default_profile="whole"),
            own_node=lambda on_asked, *_: OwnNode(client, "gpu-1", on_asked),
        )  # fmt: skip


def test_no_pod_of_the_account_of_shifts_changes_anything_else(walk: Walk) -> None:
    """It patches the ConfigMap of profiles, and no other, and no Node, Secret or DriverContainer."""
    walk.shell("kubectl -n driverwright create configmap gpu-profiles --from-literal=whole='version: v1'")
    walk.shell("kubectl apply -f examples/nvidia/shift.yaml")
    asked = {
        "patch configmaps/gpu-profiles": "yes",
        "get configmaps/gpu-profiles": "yes",
        "patch configmaps/nfd-worker-conf": "no",
        "create configmaps": "no",
        "delete configmaps/gpu-profiles": "no",
        "list configmaps": "no",
        "get secrets": "no",
        "create pods": "no",
        "patch drivercontainers/nvidia": "no",
        "patch nodes": "no",
        "get nodes": "no",
    }
    account = f"system:serviceaccount:{NAMESPACE}:{SHIFT}"
    seen = {
        words: walk.shell(f"kubectl -n {NAMESPACE} auth can-i {words} --as {account} 2>/dev/null").strip()
        for words in asked
    }
    assert seen == asked
