"""NVIDIA's devices from driver to pod on a node with containerd: a stand-in of the driver, and a test's NVML.

The module (``tests/data/gpustand-driver``, built as ``nvidia``) and the libraries (``tests/nvml``, and a
``libcuda.so.1`` of one function) are ours. Controller, build, loader, user space, stage, device-agent, kubelet and wave
are the real ones. The driver has the name of the scenario's, whose steps find it by that. The tests build on each
other, in the order they are written in.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from pathlib import Path

import pytest
import yaml

from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EXAMPLE, REPOSITORY, Scenario
from device_agent.cli.policy_command import print_rights
from driver_builder.objects.stage_labels import Stage
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import DAEMON_SETS, DEPLOYMENTS, DRIVER_CONTAINERS, NODES
from testbed import PlainLines, Testbed
from testbed.control_plane import SERVER_NAMES
from testbed.guest.guest import Guest
from tests.nvml import build
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.support.real_parts import acts, web_server
from tests.support.real_parts.chain import chain_on, controller_with_agent, stages_of
from tests.support.real_parts.cluster_setup import documents, granting
from tests.support.real_parts.device_agent import AGENT, DAEMON_SET, Place
from tests.support.real_parts.device_user import deployment
from tools import manifests, product_images

pytestmark = [pytest.mark.long, pytest.mark.chain]

NODE = "guest-gpu"
RESOURCE = "nvidia.com/gpu"
SHARED = f"{RESOURCE}.shared"
PROFILES, ACCOUNT = "gpu-profiles", "gpu-agent"
SOURCE = Path(__file__).parents[1] / "data/gpustand-driver/gpustand.c"
MODULE = "nvidia"
"""Its name on the node: by that device-agent knows one load from the next."""
FOLDER = f"usr/lib/{os.uname().machine}-linux-gnu"
LIBRARY = "libcuda.so.1"
CUDA = "int cuDriverGetVersion(int *version) { *version = 12040; return 0; }\n"
EVERY = [Stage.VALID, Stage.RUN, Stage.PLUG]
FIRST_UVM, SECOND_UVM = 240, 241
"""Major numbers of nvidia-uvm: of the first load, and of the second."""
USER = "gpu-user"
# It keeps what it has opened: while it runs, no module goes.
USES_A_CARD = f"""
import ctypes, glob, os, time
version = ctypes.c_int()
ctypes.CDLL("{LIBRARY}").cuDriverGetVersion(ctypes.byref(version))
nodes = [open(path, "rb", buffering=0) for path in sorted(glob.glob("/dev/nvidia*"))]
answers = [file.name + "=" + file.read(48).decode().strip() for file in nodes]
print("; ".join(["has", str(version.value), os.environ["NVIDIA_VISIBLE_DEVICES"], *answers]), flush=True)
time.sleep(100000)
"""


ASKER = "gpu-asker"
# As whoever scrapes metrics and follows the state of cards, without a pause; it says whom it has an answer of.
ASKS = """
import glob, os, socket, time
from device_agent.gpu_state.requests import FOLLOW, dump_request
asked = {"pages.sock": b"GET /metrics HTTP/1.1\\r\\nHost: node\\r\\n\\r\\n", "nvml.sock": dump_request(FOLLOW)}
os.chdir("/pods")
said = set()
while True:
    for path in glob.glob("*/volumes/kubernetes.io~empty-dir/*/*.sock"):
        name = os.path.basename(path)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(path)
                client.sendall(asked[name])
                answer = client.recv(65536)
        except OSError:
            continue
        line = " ".join(["answered", name, path.partition("/")[0]])
        if answer and line not in said:
            said.add(line)
            print(line, flush=True)
    time.sleep(0.1)
"""
SOCKETS = ("pages.sock", "nvml.sock")
"""Of the agent's pages, and of the container ``nvml``."""


class OneNode(Scenario):
    """The scenario with one guest, which has the image of device-agent on its disk."""

    def boot_nodes(self) -> None:
        """Boot the guest."""
        with closing(self.ground.engine.client(timeout=600)) as engine:
            agent = product_images.build_all(
                engine, self.ground.registry.host, base_image=self.ground.base_image, say=lambda _: None, keep=True,
                names=("device-agent",),
            )  # fmt: skip
        self.images = {**self.images, **agent}
        self.kernels = self.ground.kernels(1)
        self.ground.preload(sorted(self.images[name] for name in ("nfd-worker", "loader", "device-agent")))
        self.guests = {NODE: self.ground.add_guest(NODE, self.kernels[0], memory_mib=768)}
        self.guests[NODE].wait_ready(timeout=acts.SETTLE_SECONDS)


@pytest.fixture(scope="module")
def scenario(ground: Testbed, request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """Boot the node, deploy the programs, and let the controller have the image of the device agent."""
    told = OneNode(ground, PlainLines())
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        told.build_product()
        told.boot_nodes()
        told.deploy_programs()
        told.wait_for_labels()
    told.apply(documents("driver-builder/drain.yaml"))
    allowed = acts.controller_with(told, DRIVER_BUILDER_DEVICE_AGENT_ACCOUNTS=f"{NAMESPACE}/{ACCOUNT}")
    with controller_with_agent(told), allowed:
        yield told
        # What uses the driver keeps it.
        for path in (DEPLOYMENTS.path(namespace=NAMESPACE, name=USER), DAEMON_SET):
            with suppress(NotFound):
                told.cluster.client.delete(path)
        acts.delete_driver(told)


@pytest.fixture(scope="module")
def guest(scenario: Scenario) -> Guest:
    """Return the node."""
    return scenario.guests[NODE]


@pytest.fixture(scope="module")
def place(ground: Testbed, scenario: Scenario) -> Place:
    """Return what the kubelet says of the cards."""
    return Place(ground, scenario.guests[NODE].name, RESOURCE)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> FakeMachine:
    """Describe two cards, and a library that has the driver's device open as NVIDIA's has."""
    made = FakeMachine(tmp_path_factory.mktemp("machine") / "fake_nvml_machine", A100_40, 2)
    made.hold("/dev/nvidiactl")
    return made


@pytest.fixture(scope="module", autouse=True)
def _driver(scenario: Scenario, machine: FakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Apply the driver; its user space is served as long as it may be built."""
    with user_space(tmp_path_factory.mktemp("libraries"), machine) as userspace:
        data = {SOURCE.name: SOURCE.read_text(), "Makefile": f"obj-m := {MODULE}.o\n{MODULE}-y := {SOURCE.stem}.o\n"}
        metadata = {"name": "gpustand-source", "namespace": NAMESPACE}
        scenario.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])
        scenario.apply([driver(scenario, userspace)])
        yield


def test_the_cards_come_with_the_driver(scenario: Scenario, place: Place, guest: Guest) -> None:
    """Built, loaded, and offered: the plugin's stage is there, and each device node is the device that it says."""
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    place.wait_for("2", "2")
    acts.wait_until(scenario, "the stages are there", lambda: stages_of(scenario, NODE) == EVERY)
    assert answers_on(guest) == expected_answers(0, 1)
    assert major_of(guest, "/dev/nvidia-uvm") == FIRST_UVM
    assert guest.check("readlink /dev/char/195:1").strip() == "../nvidia1"


def test_nvml_uses_the_driver(guest: Guest) -> None:
    """One process has the driver's device open: the module would not go while the plugin is there."""
    assert open_files(guest) == 1


def test_a_pod_without_privileges_has_one_card_and_the_libraries(
    scenario: Scenario, guest: Guest, machine: FakeMachine
) -> None:
    """It loads the driver's library, and opens the nodes of its card and no other's."""
    scenario.apply([user(scenario)])
    cuda, card, opened = said_by_user(scenario)
    assert cuda == "12040"
    number = [machine.uuid(0), machine.uuid(1)].index(card)
    assert opened == expected_answers(number)
    assert open_files(guest) == 1 + len(opened)


def test_a_label_of_the_node_shares_the_card_that_is_free(
    scenario: Scenario, guest: Guest, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a profile that renames, with an account that is allowed; the pod's card and the stages stay as they are."""
    before = users(scenario)
    api_server_of_pods(scenario, guest)
    scenario.apply([*profiles(), *account()])
    devices = {"profiles": {"configMap": PROFILES}, "serviceAccountName": ACCOUNT}
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(path, {"spec": {"stages": {"devicePlugin": {"nvidia": devices}}}})
    acts.wait_until(
        scenario, "no other profile is asked for", lambda: profile_of(scenario) == ("success", "default", "default")
    )
    place.wait_for("2", "2")
    ask(scenario, "shared")
    acts.wait_until(scenario, "it is shared", lambda: profile_of(scenario) == ("success", "shared", "shared"))
    shares = Place(scenario.ground, NODE, SHARED)
    shares.wait_for("8", "4")
    place.wait_for("1", "1")
    assert stages_of(scenario, NODE) == EVERY
    assert users(scenario) == before
    report = json.loads(guest.check("cat /run/driverwright-agent/gpu-sharing.json"))
    assert report["resources"][RESOURCE] == {"replicas": 4, "strategy": "time-slicing", "renamed": True}
    with capsys.disabled():
        print(f"\nmemory of the plugin's processes with a profile and a token, PSS in MiB: {memory(guest)}", flush=True)
    ask(scenario, "unheard-of")
    acts.wait_until(scenario, "it is refused", lambda: profile_of(scenario) == ("failed", "unheard-of", "shared"))
    assert "default, shared" in answer(scenario)["message"]
    shares.wait_for("8", "4")
    ask(scenario, None)
    acts.wait_until(scenario, "they are whole", lambda: profile_of(scenario) == ("success", "default", "default"))
    place.wait_for("2", "2")
    assert stages_of(scenario, NODE) == EVERY
    assert users(scenario) == before


def test_a_card_that_wants_a_reset_is_not_given(place: Place, guest: Guest, machine: FakeMachine) -> None:
    """Its driver does not say what it needs, so that this lasts until the next load; the other one can be had."""
    machine.unset(0, "recovery")
    machine.xid(0, 79)
    tell(guest, machine)
    place.wait_for("2", "1")


def test_a_wave_drains_the_pod_lets_the_plugin_leave_and_brings_all_back(
    scenario: Scenario, guest: Guest, place: Place, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver gets another number for nvidia-uvm: each node is right again, also in the pod that comes back.

    And both cards can be had: nothing is held against a card from before a load. All the while somebody reads the
    plugin's metrics and the state of its cards, which keeps nothing from leaving.
    """
    before = users(scenario)
    scenario.apply([asker(scenario)])
    acts.wait_until(scenario, "the plugin is asked", lambda: all(map(len, answered(scenario))))
    asked_before = answered(scenario)
    with chain_on(guest, module=MODULE, sign="parameters/uvm_major") as seen:
        parameters = {MODULE: ["cards=2", f"uvm_major={SECOND_UVM}"]}
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
        scenario.cluster.client.patch(path, {"spec": {"module": {"parameters": parameters}}})
        acts.wait_until(scenario, "the module is another load", lambda: uvm_major(guest) == str(SECOND_UVM))
        acts.wait_until(scenario, "the stages are back", lambda: stages_of(scenario, NODE) == EVERY)
        acts.wait_until(scenario, "the wave is over", lambda: not rollout(scenario))
        place.wait_for("2", "2")
        acts.wait_until(
            scenario, "the next plugin is asked", lambda: all(map(set.difference, answered(scenario), asked_before))
        )
    scenario.cluster.client.delete(DEPLOYMENTS.path(namespace=NAMESPACE, name=ASKER))
    with capsys.disabled():
        print(f"\nuvm_major of the module, and whether the plugin runs: {seen}")
    old, new = str(FIRST_UVM), str(SECOND_UVM)
    assert (seen[0], seen[-1]) == ((old, "yes"), (new, "yes"))
    assert seen.index((old, "no")) < seen.index(("none", "no")) < seen.index((new, "no"))
    assert ("none", "yes") not in seen
    assert answers_on(guest) == expected_answers(0, 1)
    assert major_of(guest, "/dev/nvidia-uvm") == SECOND_UVM
    links = guest.check("ls -l /dev/char").splitlines()
    assert [line.split()[-3:] for line in links if "nvidia-uvm" in line] == [
        [f"{SECOND_UVM}:0", "->", "../nvidia-uvm"],
        [f"{SECOND_UVM}:1", "->", "../nvidia-uvm-tools"],
    ]
    acts.wait_until(scenario, "the pod is another one", lambda: bool(users(scenario) - before))
    _, card, opened = said_by_user(scenario, not_of=before)
    assert opened == expected_answers([machine.uuid(0), machine.uuid(1)].index(card))


def test_the_charts_daemonset_offers_the_cards_in_place_of_the_stage(
    scenario: Scenario, guest: Guest, place: Place
) -> None:
    """Where the driver has no plugin of its own; the pod runs where the driver may be used, and NVML uses it again."""
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(path, {"spec": {"stages": {"devicePlugin": None}}})
    acts.wait_until(scenario, "the plugin is gone", lambda: stages_of(scenario, NODE) == EVERY[:2])
    acts.wait_until(scenario, "no card can be had", lambda: place.count("allocatable") == "0")
    scenario.apply(charts_agent(scenario))
    place.wait_for("2", "2")
    assert answers_on(guest) == expected_answers(0, 1)
    (pod,) = scenario.cluster.pods(AGENT)
    assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0, 0]


def test_a_driver_that_is_deleted_takes_all_with_it(scenario: Scenario, guest: Guest, place: Place) -> None:
    """The chart's pod, module and libraries; device nodes stay, and open nothing."""
    scenario.cluster.client.delete(DEPLOYMENTS.path(namespace=NAMESPACE, name=USER))
    scenario.remove_driver()
    acts.wait_until(scenario, "no card can be had", lambda: place.count("allocatable") == "0")
    assert guest.run(f"ls /sys/module/{MODULE}")[0] != 0
    assert guest.run("ls /run/nvidia/driver/")[0] != 0
    assert "No such device or address" in guest.run("cat /dev/nvidia0 2>&1")[1]
    assert stages_of(scenario, NODE) == []
    assert scenario.cluster.pods(AGENT) == []


def driver(scenario: Scenario, userspace: Json) -> Json:
    """Make the DriverContainer, for the node alone."""
    body: Json = yaml.safe_load((EXAMPLE / "driver-container.yaml").read_text())
    body["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "image": f"{scenario.ground.registry.host}/{REPOSITORY}",
        "registry": {"plainHttp": True},
        "source": {"configMap": {"name": "gpustand-source"}},
        "module": {"names": [MODULE], "parameters": {MODULE: ["cards=2", f"uvm_major={FIRST_UVM}"]}},
        "userspace": userspace,
        "stages": {"devicePlugin": {"nvidia": {"libraries": {"path": "/run/nvidia/driver"}}}},
        "rollout": {"drain": {"resources": [RESOURCE], "deadline": "30m"}},
    }
    return body


@contextmanager
def user_space(folder: Path, machine: FakeMachine) -> Iterator[Json]:
    """Serve the driver's user space: the test's NVML, with what it says beside it, and a library of CUDA's name."""
    libraries = folder / "gpustand" / FOLDER
    libraries.mkdir(parents=True)
    build(libraries)
    (libraries / machine.path.name).write_text(machine.text())
    options = ("-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-x", "c", "-", "-o", str(libraries / f"{LIBRARY}.0.0"))
    subprocess.run(["gcc", *options], input=CUDA, text=True, check=True)
    (libraries / LIBRARY).symlink_to(f"{LIBRARY}.0.0")
    archive = folder / "gpustand.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "gpustand", arcname="gpustand")
    with web_server.served(folder) as url:
        pin = {"url": f"{url}/{archive.name}", "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
        yield {"archive": pin, "versionFile": f"{FOLDER}/{LIBRARY}.0.0", "hostPath": "/run/nvidia/driver"}


def user(scenario: Scenario) -> Json:
    """Make a Deployment of one pod that has a card, and nothing else of the node."""
    container: Json = {
        "image": scenario.images["device-agent"],
        "command": ["python3", "-c", USES_A_CARD],
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}],
        "resources": {"limits": {RESOURCE: "1"}},
        "securityContext": {"runAsUser": 65534, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return deployment(USER, NODE, container)


def api_server_of_pods(scenario: Scenario, guest: Guest) -> None:
    """Let pods reach the API server where a cluster has it: nothing forwards the addresses of Services here."""
    host, port = SERVER_NAMES[-1], 443
    guest.check(f"ifconfig lo:1 {host} netmask 255.255.255.255 up")
    guest.check(
        f"socat TCP-LISTEN:{port},bind={host},fork,reuseaddr TCP:10.0.2.2:{scenario.ground.api_port} >/dev/null 2>&1 &"
    )


def profiles() -> list[Json]:
    """Make a ConfigMap with a profile that shares no card, and one that shares all of them under another name."""
    resources = [{"name": RESOURCE, "replicas": 4}]
    shared = {"version": "v1", "sharing": {"timeSlicing": {"renameByDefault": True, "resources": resources}}}
    data = {"default": json.dumps({"version": "v1"}), "shared": json.dumps(shared)}
    metadata = {"name": PROFILES, "namespace": NAMESPACE}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


def account() -> list[Json]:
    """Make the account that the agent has a token of, with the roles that device-agent prints, and who may read it."""
    text = io.StringIO()
    with redirect_stdout(text):
        print_rights(f"{NAMESPACE}/{ACCOUNT}")
    roles = [obj for obj in yaml.safe_load_all(text.getvalue()) if "Role" in obj["kind"]]
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [ACCOUNT], "verbs": ["get"]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *roles,
        *granting("Role", metadata, rule, f"{NAMESPACE}/driver-builder"),
    ]


def ask(scenario: Scenario, profile: str | None) -> None:
    """Label the node with the profile that it is to have."""
    scenario.cluster.client.patch(NODES.path(name=NODE), {"metadata": {"labels": {names.GPU_PROFILE_LABEL: profile}}})


def answer(scenario: Scenario) -> Json:
    """Return what the agent says about the profile."""
    annotations = scenario.cluster.node(NODE)["metadata"].get("annotations") or {}
    found: Json = json.loads(annotations.get(names.GPU_PROFILE_ANNOTATION) or "{}")
    return found


def profile_of(scenario: Scenario) -> tuple[str | None, str | None, str | None]:
    """Return the state of the profile, which one is asked for, and which one is in force."""
    said = answer(scenario)
    state = scenario.cluster.labels(NODE).get(names.GPU_PROFILE_STATE_LABEL)
    return state, said.get("asked"), said.get("applied")


def memory(guest: Guest) -> dict[str, float]:
    """Return the memory of each process of the plugin, in MiB (PSS)."""
    look = (
        "for folder in /proc/[0-9]*; do words=$(tr '\\0' ' ' <$folder/cmdline 2>/dev/null); "
        'case "$words" in *device?agent*" run "*|*nvml*) '
        'echo "${folder#/proc/}=$(sed -n "s/^Pss: *\\([0-9]*\\) kB/\\1/p" $folder/smaps_rollup)";; esac; done'
    )
    return {pid: int(size) / 1024 for pid, size in (line.split("=") for line in guest.check(look).splitlines()) if size}


def charts_agent(scenario: Scenario) -> list[Json]:
    """Render what the chart makes for device-agent, changed for a cluster without a pod network."""
    nvidia = {"enabled": True, "driver": f"{NAMESPACE}/{DRIVER}", "libraries": {"path": "/run/nvidia/driver"}}
    made = manifests.render({"deviceAgent": {"enabled": True, "nvidia": nvidia}}, namespace=NAMESPACE)
    texts = (text for name, text in made.items() if name.startswith("device-agent/"))
    objects = [obj for text in texts for obj in yaml.safe_load_all(text) if obj]
    (spec,) = (obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] == DAEMON_SETS.kind)
    spec["hostNetwork"] = True
    for container in spec["containers"]:
        container |= {"image": scenario.images["device-agent"], "imagePullPolicy": "IfNotPresent"}
    return objects


def asker(scenario: Scenario) -> Json:
    """Make a Deployment of one pod that asks all that a plugin's pod can be asked."""
    container: Json = {
        "image": scenario.images["device-agent"],
        "command": ["python3", "-c", ASKS],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [
            {"name": "pods", "mountPath": "/pods", "readOnly": True, "mountPropagation": "HostToContainer"}
        ],
    }
    return deployment(ASKER, NODE, container, ({"name": "pods", "hostPath": {"path": "/var/lib/kubelet/pods"}},))


def answered(scenario: Scenario) -> tuple[set[str], ...]:
    """Return the uids of the pods of which the asker has had an answer, for each of their sockets."""
    words = [line.split() for line in scenario.cluster.log_tail(f"app={ASKER}", 100).splitlines()]
    return tuple({line[2] for line in words if line[:2] == ["answered", name]} for name in SOCKETS)


def users(scenario: Scenario) -> set[str]:
    """Return the uids of the pods that have a card, or want one."""
    pods = scenario.cluster.pods(f"app={USER}")
    return {pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") != "Failed"}


def said_by_user(
    scenario: Scenario, not_of: frozenset[str] | set[str] = frozenset()
) -> tuple[str, str, dict[str, str]]:
    """Wait for what the only pod has said: CUDA's version, its card, and what each device node answered."""

    def said() -> str | None:
        now = users(scenario)
        _, has_said, line = scenario.cluster.log_tail(f"app={USER}", 20).rpartition("has; ")
        is_of_one = len(now) == 1 and not now & not_of and now == users(scenario)
        return line if has_said and is_of_one else None

    def why() -> str:
        return f"{scenario.describe_pods(f'app={USER}')}; {scenario.cluster.log_tail(f'app={USER}', 20)}"

    line = scenario.cluster.wait("the pod has a card", said, timeout=acts.SETTLE_SECONDS, seen=why)
    cuda, card, *answers = line.split("; ")
    return cuda, card, dict(answer.split("=") for answer in answers)


def expected_answers(*cards: int) -> dict[str, str]:
    """Return what the device nodes answer that belong to the driver and these cards."""
    common = {"nvidiactl": 255, "nvidia-modeset": 254}
    nodes = {**{f"/dev/{name}": f"{name} {minor}" for name, minor in common.items()}, "/dev/nvidia-uvm": "nvidia-uvm 0"}
    nodes["/dev/nvidia-uvm-tools"] = "nvidia-uvm 1"
    return nodes | {f"/dev/nvidia{card}": f"nvidia {card}" for card in cards}


def answers_on(guest: Guest) -> dict[str, str]:
    """Read each device node on the node itself."""
    told = guest.check('for node in /dev/nvidia*; do [ -d "$node" ] || echo "$node=$(head -n 1 "$node")"; done')
    return dict(line.split("=") for line in told.splitlines())


def major_of(guest: Guest, node: str) -> int:
    """Return the major number of a device node."""
    return int(guest.check(f"stat -c %t {node}").strip(), 16)


def open_files(guest: Guest) -> int:
    """Count the files by which the driver's module is in use: each counts twice, for its device and its operations."""
    return int(guest.check(f"cat /sys/module/{MODULE}/refcnt")) // 2


def uvm_major(guest: Guest) -> str:
    """Return which nvidia-uvm the module on the node was loaded with, empty while there is none."""
    return guest.run(f"cat /sys/module/{MODULE}/parameters/uvm_major 2>/dev/null")[1].strip()


def tell(guest: Guest, machine: FakeMachine) -> None:
    """Let the cards on the node be as the machine has them."""
    path = f"/run/nvidia/driver/{FOLDER}/{machine.path.name}"
    guest.check(f"cat >{path}.new <<'END'\n{machine.text()}END\nmv {path}.new {path}")


def rollout(scenario: Scenario) -> Json:
    """Return the wave in the driver's status, empty while there is none."""
    found: Json = (scenario.cluster.driver(DRIVER).get("status") or {}).get("rollout") or {}
    return found
