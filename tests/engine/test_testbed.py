"""The testbed itself: its parts are real, can be distinguished, and leave nothing behind (``make test-long``).

What the other tests need of it, they show each time that they run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from testbed import Guest, PlainLines, Testbed, TestbedError
from testbed.api import Api, ApiError
from testbed.packages import why_unsupported

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]
SECONDS = 600.0


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        time.sleep(0.2)


def pod(name: str, node: str, image: str, *command: str) -> dict[str, Any]:
    """Return a pod on the host's network."""
    container = {"name": "main", "image": image, "command": list(command), "imagePullPolicy": "IfNotPresent"}
    spec = {"nodeName": node, "hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def knock(ground: Testbed) -> str:
    """Return a shell command that says "reached" when 127.0.0.1 leads to the API server, which wants TLS."""
    request = r"printf 'GET / HTTP/1.0\r\n\r\n'"
    return f"{request} | nc 127.0.0.1 {ground.api_port} | grep -q 'HTTPS server' && echo reached"


@contextmanager
def running_pod(api: Api, body: dict[str, Any], timeout: float = SECONDS) -> Iterator[str]:
    """Run a pod for the time of the context."""
    path = f"/api/v1/namespaces/default/pods/{body['metadata']['name']}"
    api.create("/api/v1/namespaces/default/pods", body)
    try:
        wait_until(lambda: api.request(path)["status"]["phase"] == "Running", timeout, f"{path} runs")
        yield body["metadata"]["name"]
    finally:
        api.delete(path)


# ------------------------------------------------------------------ control plane


def test_api_server_keeps_custom_resources_with_empty_strings(control_plane_ground: Testbed) -> None:
    """Both fixes of the old server work: it survives a custom resource, and an empty string is not null."""
    api = control_plane_ground.api
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"text": {"type": "string"}}}},
    }
    names = {"plural": "probes", "singular": "probe", "kind": "Probe"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    api.apply(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/probes.ground.test",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "probes.ground.test"},
            "spec": {"group": "ground.test", "names": names, "scope": "Cluster", "versions": [version]},
        },
    )
    collection = "/apis/ground.test/v1/probes"
    wait_until(lambda: api.get(collection) is not None, SECONDS, "the resource is served")
    body = {"apiVersion": "ground.test/v1", "kind": "Probe", "metadata": {"name": "a"}, "spec": {"text": ""}}
    api.create(collection, body)
    assert api.request(f"{collection}/a")["spec"] == {"text": ""}


def test_strangers_are_refused(control_plane_ground: Testbed) -> None:
    """Another token is no administrator."""
    stranger = Api(control_plane_ground.api_server, "guessed", control_plane_ground.ca_file)
    with pytest.raises(ApiError, match="401"):
        stranger.request("/api/v1/nodes")


def test_control_plane_comes_back_after_a_crash(control_plane_ground: Testbed) -> None:
    """A killed API server refuses connections; started again it still knows everything."""
    plane, api = control_plane_ground.control_plane, control_plane_ground.api
    api.apply(
        "/api/v1/namespaces/survivor", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "survivor"}}
    )
    plane.kill("kube-apiserver")
    assert not api.is_ready()
    plane.start("kube-apiserver")
    assert api.get("/api/v1/namespaces/survivor")


def test_a_part_that_was_not_started_says_so(control_plane_ground: Testbed) -> None:
    """A ground without nodes does not pretend."""
    with pytest.raises(TestbedError, match="without its host node"):
        _ = control_plane_ground.host_node


# ------------------------------------------------------------------ engine and registry


@pytest.fixture
def small_image_url(engine_ground: Testbed) -> str:
    """The address of the small image's manifest."""
    path = engine_ground.small_image.removeprefix(f"{engine_ground.registry.host}/").replace(":", "/manifests/")
    return f"{engine_ground.registry.url}/v2/{path}"


def test_images_built_on_the_base_image_can_be_pushed_and_pulled(engine_ground: Testbed) -> None:
    """An image built on Debian goes to the registry and comes back."""
    reference = f"{engine_ground.registry.host}/test/built"
    client = engine_ground.engine.client()
    try:
        recipe = f"FROM {engine_ground.base_image}\nRUN grep -q bookworm-security /etc/apt/sources.list\n"
        context = _tar_of({"Dockerfile": recipe})
        output = list(
            client.build(fileobj=context, custom_context=True, tag=f"{reference}:1", network_mode="host", decode=True)
        )
        assert not [line for line in output if "error" in line]
        assert not [line for line in client.push(reference, tag="1", stream=True, decode=True) if "error" in line]
        client.remove_image(f"{reference}:1")
        client.pull(reference, tag="1")
        assert client.inspect_image(f"{reference}:1")["Os"] == "linux"
    finally:
        client.close()


def _tar_of(files: dict[str, str]) -> Any:
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    buffer.seek(0)
    return buffer


def test_registry_keeps_its_content_over_a_restart(engine_ground: Testbed, small_image_url: str) -> None:
    """Stopped it refuses connections; started again it is the same registry on the same port."""
    engine_ground.registry.stop()
    with pytest.raises(requests.ConnectionError):
        requests.get(small_image_url, timeout=30)
    engine_ground.registry.start()
    assert requests.get(small_image_url, timeout=30).status_code == 200


def test_registry_can_ask_for_a_password(engine_ground: Testbed, small_image_url: str) -> None:
    """With a password set, the anonymous are refused; without it they are welcome again."""
    engine_ground.registry.set_auth("user", "secret")
    try:
        assert requests.get(small_image_url, timeout=30).status_code == 401
        assert engine_ground.registry.auth_config == {"username": "user", "password": "secret"}
    finally:
        engine_ground.registry.set_auth(None)
    assert requests.get(small_image_url, timeout=30).status_code == 200


def test_engine_keeps_its_images_over_a_crash(engine_ground: Testbed) -> None:
    """A killed engine comes back with what it had."""
    engine_ground.engine.kill()
    assert not engine_ground.engine.is_ready()
    engine_ground.engine.start()
    client = engine_ground.engine.client()
    try:
        assert client.inspect_image(engine_ground.base_image)
    finally:
        client.close()


# ------------------------------------------------------------------ nodes


def test_pod_on_this_machine_reaches_the_api_server(ground: Testbed) -> None:
    """A pod runs on the host node and has a token, the authority, and the API server on 127.0.0.1."""
    script = f"ls /var/run/secrets/kubernetes.io/*; {knock(ground)}; sleep 600"
    body = pod("on-host", ground.host_node_name, ground.small_image, "sh", "-c", script)
    with running_pod(ground.api, body) as name:
        wait_until(lambda: "reached" in ground.api.pod_log("default", name), SECONDS, "the pod reaches the API server")
        assert {"ca.crt", "token"} <= set(ground.api.pod_log("default", name).split())


@pytest.fixture(scope="module")
def guest(ground: Testbed) -> Iterator[Guest]:
    """A guest with the oldest of three kernels."""
    oldest = ground.kernels(3)[0]
    guest = ground.add_guest("guest-own", oldest)
    guest.wait_ready()
    yield guest
    ground.guests.remove(guest.name)


def test_guest_is_a_node_with_its_own_kernel(guest: Guest) -> None:
    """The Node object and the guest's kernel agree."""
    node = guest.node()
    assert node is not None
    assert node["status"]["nodeInfo"]["kernelVersion"] == guest.kernel.release
    assert guest.check("uname -r").strip() == guest.kernel.release


def test_commands_in_a_guest_report_status_and_output(guest: Guest) -> None:
    """Whatever a command prints, its status and its text come back as they were."""
    assert guest.run('echo "it\'s [0] %s"; exit 7') == (7, "it's [0] %s\n")
    assert len(guest.check("head -c 300000 /dev/zero | tr '\\0' x")) == 300000


def test_pods_in_a_guest_can_be_logged_and_entered(ground: Testbed, guest: Guest) -> None:
    """The API server reaches the guest's kubelet: logs and exec work."""
    script = f"{knock(ground)}; sleep 600"
    with running_pod(ground.api, pod("in-guest", guest.name, ground.small_image, "sh", "-c", script)) as name:
        wait_until(lambda: "reached" in ground.api.pod_log("default", name), SECONDS, "the pod reaches the API server")
        kubectl = [str(ground.binaries.path("kubectl")), "--kubeconfig", str(ground.kubeconfig)]
        done = subprocess.run([*kubectl, "exec", name, "--", "uname", "-r"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == guest.kernel.release


def test_privileged_pod_loads_a_module_and_sees_the_node(ground: Testbed, guest: Guest) -> None:
    """What driver and worker pods need: the node's kernel takes a module, and its files can be mounted."""
    module = f"/lib/modules/{guest.kernel.release}/kernel/drivers/net/dummy.ko"
    body = pod("driver", guest.name, ground.small_image, "sh", "-c", f"insmod {module} && echo loaded; sleep 600")
    places = ["/lib/modules", "/sys", "/boot", "/usr/lib", "/etc/os-release", "/etc/kubernetes/node-feature-discovery"]
    container = body["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True}
    container["volumeMounts"] = [
        {"name": f"v{number}", "mountPath": place if place == "/lib/modules" else f"/host{place}", "readOnly": True}
        for number, place in enumerate(places)
    ]
    body["spec"]["volumes"] = [{"name": f"v{number}", "hostPath": {"path": p}} for number, p in enumerate(places)]
    with running_pod(ground.api, body) as name:
        wait_until(lambda: "loaded" in ground.api.pod_log("default", name), SECONDS, "the module is loaded")
        assert "dummy" in guest.check("cat /proc/modules")
        assert "loaded" in guest.pod_logs("default", name)


def test_edu_device_can_be_unplugged_and_plugged(guest: Guest) -> None:
    """The PCI device is there, goes and comes back while the guest runs."""
    find = "grep -l 0x11e8 /sys/bus/pci/devices/*/device"
    assert guest.run(find)[0] == 0
    guest.unplug_edu()
    wait_until(lambda: guest.run(find)[0] != 0, SECONDS, "the device is gone")
    guest.plug_edu()
    wait_until(lambda: guest.run(find)[0] == 0, SECONDS, "the device is back")


def test_rebooted_guest_runs_another_kernel_on_the_same_disk(ground: Testbed, guest: Guest) -> None:
    """The node keeps its name and its disk, and reports its new kernel."""
    newest = ground.kernels(3)[-1]
    guest.check("echo kept >/root/mark; sync")
    guest.reboot(newest)
    guest.wait_ready()
    node = guest.node()
    assert node is not None
    assert node["status"]["nodeInfo"]["kernelVersion"] == newest.release
    assert guest.check("cat /root/mark") == "kept\n"


def test_guest_survives_a_power_cut(guest: Guest) -> None:
    """The same disks boot again after the power was taken away."""
    before = guest.boot_id()
    guest.power_cut()
    assert not guest.is_running()
    guest.boot(guest.kernel)
    guest.wait_ready()
    assert guest.boot_id() != before


def test_guest_cannot_boot_a_kernel_that_its_disk_does_not_know(guest: Guest) -> None:
    """Without modules it could not even find its network: said at once, not after a time-out."""
    import dataclasses

    with pytest.raises(TestbedError, match="running already"):
        guest.boot(guest.kernel)
    guest.power_off()
    with pytest.raises(TestbedError, match=r"no modules of 0\.0\.0"):
        guest.boot(dataclasses.replace(guest.kernel, release="0.0.0"))


# ------------------------------------------------------------------ the end

_HARNESS = """
import json, sys, time
from testbed import Testbed
ground = Testbed.start(nodes={nodes})
if {nodes}:
    kernel = ground.kernels(1)[0]
    ground.add_guest("guest-z", kernel)
print(json.dumps({{"folder": str(ground.folder), "name": ground.name}}), flush=True)
time.sleep(600)
"""


def _traces(name: str, folder: str) -> list[str]:
    """Return everything on this machine that belongs to a ground, but for its logs."""
    commands = [path.read_bytes() for path in _readable("/proc/[0-9]*/cmdline")]
    found = [command.decode(errors="replace") for command in commands if name.encode() in command]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if name in line]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{name}")]
    found += [str(path) for path in Path(folder).glob("*") if path.name != "logs"]
    return found


def _readable(pattern: str) -> Iterator[Path]:
    for path in Path("/").glob(pattern.lstrip("/")):
        try:
            path.read_bytes()
        except OSError:
            continue
        yield path


@pytest.fixture
def killed_harness() -> Iterator[Callable[[], dict[str, str]]]:
    """Start a ground in a process of its own and kill that; give the ground's names."""
    if reason := why_unsupported():
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, "-c", _HARNESS.format(nodes=True)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:

        def kill() -> dict[str, str]:
            assert process.stdout is not None
            names: dict[str, str] = json.loads(process.stdout.readline())
            assert _traces(names["name"], names["folder"])
            process.send_signal(signal.SIGKILL)
            process.wait()
            return names

        try:
            yield kill
        finally:
            process.kill()


def test_nothing_is_left_after_the_harness_was_killed(killed_harness: Callable[[], dict[str, str]]) -> None:
    """SIGKILL gives no chance to clean up; processes, mounts, control groups and files go all the same."""
    names = killed_harness()
    wait_until(lambda: not _traces(names["name"], names["folder"]), SECONDS, "every trace is gone")
    assert list(Path(names["folder"], "logs").iterdir()), "the logs of a crash are kept"
    subprocess.run(["rm", "-rf", names["folder"]], check=True)


def test_nothing_is_left_after_an_orderly_end() -> None:
    """A ground that ends with its context takes even its logs away; an error in it keeps them."""
    if reason := why_unsupported():
        pytest.skip(reason)
    with Testbed.start(progress=PlainLines(), control_plane=False) as ended:
        assert ended.folder.exists()
    assert not ended.folder.exists()
    assert _traces(ended.name, str(ended.folder)) == []
    with pytest.raises(ValueError, match="on purpose"), Testbed.start(control_plane=False) as failed:
        raise ValueError("on purpose")
    assert (failed.logs / "dockerd.log").exists()
    subprocess.run(["rm", "-rf", failed.folder], check=True)
