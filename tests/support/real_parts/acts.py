"""What end-to-end tests do to the cluster beyond the scenario: restarts, stopped processes, pods, faulty sources."""

import base64
import contextlib
import io
import json
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from demo.cluster import NAMESPACE, Json
from demo.scenario import CONTROLLER, DRIVER, REPOSITORY, Scenario
from driver_builder.model.image_state import ImageState
from driver_builder.objects.manifests import TARGET_LABEL
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry import RegistryClient
from kube_api.resources import DEPLOYMENTS, DRIVER_CONTAINERS, PODS
from testbed.guest.guest import Guest
from testbed.kernels import KernelPackage
from tests.support.loopback import LOOPBACK
from tests.support.real_parts import host_containers
from tests.support.real_parts.cluster_setup import documents

SETTLE_SECONDS = 600.0
DEPLOYMENT = DEPLOYMENTS.path(namespace=NAMESPACE, name="driver-builder")
SHELL = ("/driverwright/busybox", "sh")
LOADER = (*SHELL, "/driverwright/loader.sh")
"""What a driver pod has of the loader's image; driver images have data only."""

_RIGHTS = "driver-builder/rbac.yaml"
_READS = frozenset({"get", "list", "watch"})
_TELLING = (
    ("patch", "apps", "daemonsets"),
    ("patch", "", "nodes"),
    ("patch", "driverwright.io", "drivercontainers", "status"),
)
"""What a node, or the next controller, is told by."""

_BUILD_STARTED = re.compile(r"build ([0-9a-f]{20}): starting \S+ for \S+ as [^/]+/([^:]+):(\S+)")
_BUILD_AT_WORK = re.compile(r"build ([0-9a-f]{20}): Step [0-9]+/[0-9]+ : ")


def inspect(scenario: Scenario, reference: str, repository: str = REPOSITORY) -> ImageState:
    """Ask the registry about one image, with the test's own eyes."""
    where = scenario.ground.registry
    known = Credentials(username=where.username, password=where.password or "") if where.username else None
    return RegistryClient(where.host, credentials=known, plain_http=True, reach=LOOPBACK).inspect(repository, reference)


def started_builds(scenario: Scenario, repository: str) -> list[tuple[str, str]]:
    """(key, tag) of every build into a repository that any controller has started, in order."""
    return _started(controller_log(scenario), repository)


def _started(log: str, repository: str) -> list[tuple[str, str]]:
    return [(key, tag) for key, where, tag in _BUILD_STARTED.findall(log) if where == repository]


def builds_at_work(scenario: Scenario, repository: str) -> list[tuple[str, str]]:
    """Those of :func:`started_builds` that the engine works at: they have asked the registry all they need to begin."""
    log = controller_log(scenario)
    at_work = set(_BUILD_AT_WORK.findall(log))
    return [build for build in _started(log, repository) if build[0] in at_work]


def docker_config(host: str, username: str, password: str) -> str:
    """What a kubernetes.io/dockerconfigjson Secret holds, in base64."""
    auths = {"auths": {host: {"username": username, "password": password}}}
    return base64.b64encode(json.dumps(auths).encode()).decode()


def spooled(chunks: Iterable[bytes]) -> io.BytesIO:
    """A stream of an engine as a file."""
    return io.BytesIO(b"".join(chunks))


class _Silent:
    def detail(self, text: str) -> None:
        pass

    def percent(self, value: float) -> None:
        pass


SILENT = _Silent()


def wait_for_reason(scenario: Scenario, kernel: str, reason: str) -> Json:
    """Wait until a target of the driver has this reason; returns the target."""

    def check() -> Json | None:
        target = scenario.cluster.targets(DRIVER).get(kernel, {})
        return target if target.get("reason") == reason else None

    return scenario.cluster.wait(
        f"target {kernel} has reason {reason}",
        check,
        timeout=SETTLE_SECONDS,
        seen=lambda: scenario.cluster.describe_targets(DRIVER),
    )


def wait_for_events(scenario: Scenario, *reasons: str) -> None:
    """Wait until the driver has Events with these reasons: they come after the status that they are about."""

    def check() -> bool | None:
        return {event["reason"] for event in scenario.cluster.events(DRIVER)}.issuperset(reasons) or None

    scenario.cluster.wait(f"Events say {', '.join(reasons)}", check, timeout=SETTLE_SECONDS)


def delete_driver(scenario: Scenario) -> None:
    """Take the driver away, if it is there, and wait until it is gone."""
    with contextlib.suppress(Exception):
        scenario.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
    scenario.wait_until_driver_is_gone()


def controller_containers(scenario: Scenario) -> list[str]:
    """Ids of the containers of the controller that have a process."""
    pods = scenario.cluster.client.list(PODS.path(namespace=NAMESPACE), label_selector=CONTROLLER).items
    statuses = (one for pod in pods for one in pod["status"].get("containerStatuses", ()))
    ids = [one.get("containerID", "").rpartition("/")[2] for one in statuses]
    return [one for one in ids if one and host_containers.main_process(one)]


def kill_controller(scenario: Scenario) -> None:
    """SIGKILL, as the out-of-memory killer would; the kubelet starts the next one."""
    # The Pod is behind: after a kill it still names the container that is gone.
    wait_for("the controller runs", lambda: controller_containers(scenario))
    for container in controller_containers(scenario):
        host_containers.kill(container)


def engines(scenario: Scenario) -> list[bool]:
    """Tell of each pod of the controller that runs whether it has a container engine; none may be on its way."""
    pods = scenario.cluster.client.list(PODS.path(namespace=NAMESPACE), label_selector=CONTROLLER).items
    if any(pod["status"]["phase"] != "Running" for pod in pods):
        return []
    return [any(volume["name"] == "engine" for volume in pod["spec"]["volumes"]) for pod in pods]


@contextlib.contextmanager
def controller_with(scenario: Scenario, **environment: str) -> Iterator[None]:
    """Let the controller run with other settings, by variables of its environment, and then with its own again."""
    own = scenario.cluster.client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    first, *others = own
    added = [{"name": name, "value": value} for name, value in environment.items()]
    _set_containers(scenario, [{**first, "env": [*first["env"], *added]}, *others])
    try:
        yield
    finally:
        _set_containers(scenario, own)


def _set_containers(scenario: Scenario, containers: list[Json]) -> None:
    """Change the containers of the controller, and wait until its only pod is one with them."""
    scenario.cluster.client.patch(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}})

    def check() -> bool:
        pods = scenario.cluster.client.list(PODS.path(namespace=NAMESPACE), label_selector=CONTROLLER).items
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        return len(pods) == 1 and [pod["spec"]["containers"][0]["env"] for pod in running] == [containers[0]["env"]]

    wait_for("the controller runs with its new settings", check)


@contextlib.contextmanager
def stopped(scenario: Scenario, *processes: str) -> Iterator[None]:
    """Freeze processes of the ground: they answer nobody, and lose nothing."""
    for name in processes:
        scenario.ground.processes.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in processes:
            scenario.ground.processes.signal(name, signal.SIGCONT)


@contextlib.contextmanager
def without_writes(scenario: Scenario) -> Iterator[None]:
    """Take the controller's rights to write, but for those to its Lease: it goes on, and tells nobody anything."""
    rights = list(documents(_RIGHTS))
    scenario.apply(map(_reading, rights))
    try:
        wait_for("the controller may not write", lambda: not any(_may(scenario, *it) for it in _TELLING), every=0.1)
        yield
    finally:
        scenario.apply(rights)


def _reading(right: Json) -> Json:
    """Return a role without verbs that write, as far as it is not about Leases; anything else as it is."""
    if "rules" not in right:
        return right
    rules = [
        rule if rule["resources"] == ["leases"] else {**rule, "verbs": sorted({*rule["verbs"]} & _READS)}
        for rule in right["rules"]
    ]
    return {**right, "rules": [rule for rule in rules if rule["verbs"]]}


def _may(scenario: Scenario, verb: str, group: str, resource: str, subresource: str = "") -> bool:
    """Ask the API server whether the controller may do something."""
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    if resource != "nodes":
        attributes["namespace"] = NAMESPACE
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:driver-builder",
            "resourceAttributes": attributes,
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    is_allowed: bool = scenario.cluster.client.create(path, review)["status"]["allowed"]
    return is_allowed


def wait_for(what: str, check: Callable[[], object], *, timeout: float = SETTLE_SECONDS, every: float = 0.5) -> None:
    """Wait for something outside of Kubernetes."""
    end = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < end, f"{what}: not within {timeout:.0f} s"
        time.sleep(every)


def controller_log(scenario: Scenario) -> str:
    """All that controllers have said, the killed ones too and in their order, straight from the node."""
    return host_containers.written(scenario.ground.host_node.pod_logs, "driver-builder")


def run_pod(scenario: Scenario, name: str, guest: Guest, image: str, command: list[str]) -> Json:
    """Run a privileged pod on one guest, past the scheduler, with the loader in it; returns its terminated state."""
    loader = {"name": "driverwright", "mountPath": "/driverwright"}
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": guest.name,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "driverwright", "emptyDir": {}}],
            "initContainers": [
                {
                    "name": "loader",
                    "image": scenario.images["loader"],
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/busybox", "cp", "/busybox", "/loader.sh", "/driverwright/"],
                    "volumeMounts": [loader],
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": command,
                    "securityContext": {"privileged": True},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [loader],
                }
            ],
        },
    }
    path = PODS.path(namespace=NAMESPACE, name=name)
    scenario.cluster.client.create(PODS.path(namespace=NAMESPACE), pod)

    def ended() -> Json | None:
        status = scenario.cluster.client.get(path).get("status") or {}
        for container in status.get("containerStatuses") or ():
            state: Json | None = container["state"].get("terminated")
            if state is not None:
                return state
        return None

    try:
        return scenario.cluster.wait(f"pod {name} has ended", ended, timeout=SETTLE_SECONDS)
    finally:
        scenario.cluster.client.delete(path)


def pod_uids(scenario: Scenario) -> dict[str, str]:
    """Return the uid of the pod on each node that has the driver; one that was made a moment ago has no node yet.

    Pods that validate or unload the driver, and those of its plugin, have its label as well, and no target's.
    """
    pods = [pod for pod in scenario.cluster.driver_pods(DRIVER) if TARGET_LABEL in pod["metadata"]["labels"]]
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods if "nodeName" in pod["spec"]}


def hold_device(guest: Guest, file: str) -> None:
    """Let a process of a guest, whose id is in a file then, use the driver's device; it is open when this returns."""
    guest.check(f"exec 3</dev/edu0; sleep 100000 <&3 >/dev/null 2>&1 & echo $! >{file}")


def replace_guest(scenario: Scenario, name: str, kernel: KernelPackage) -> None:
    """Boot a fresh guest in the place of another one, with the system that its kernel is of; wait for its labels."""
    scenario.ground.guests.remove(name)
    guest = scenario.ground.add_guest(name, kernel)
    scenario.guests[name] = guest
    guest.wait_ready(timeout=SETTLE_SECONDS)
    scenario.wait_for_kernel_label(guest, SILENT)


def live_module(guest: Guest) -> str:
    """Return reference count, identity and load of the driver's module in a guest's kernel.

    Of a few readings the lowest count: who only looks at the device (a probe does) may hold it for a moment. The kernel
    makes the module's folder when it is loaded; a module that was loaded anew has another one.
    """
    lowest = "for try in 1 2 3 4 5 6; do cat refcnt; sleep 0.3; done | sort -n | head -n 1"
    return guest.check(f"cd /sys/module/edudrv && {lowest} && cat srcversion && stat -c %i .")


def image_of(scenario: Scenario, kernel: str, repository: str = REPOSITORY) -> str:
    """The driver image for a kernel, by digest, as nodes pull it."""
    target = scenario.cluster.targets(DRIVER)[kernel]
    return f"{scenario.ground.registry.host}/{repository}@{target['imageDigest']}"


def verdict(state: Json) -> dict[str, Any]:
    """Read the loader's verdict from a terminated state."""
    read: dict[str, Any] = json.loads(state["message"])
    return read


def image_size(scenario: Scenario, kernel: str) -> int:
    """Unpacked size of the driver image for a kernel, in bytes."""
    api = scenario.ground.engine.client()
    image = image_of(scenario, kernel)
    api.pull(image)
    size: int = api.inspect_image(image)["Size"]
    return size


def unloading(scenario: Scenario) -> Json:
    """Return the driver's condition ``Unloading``, empty where there is none."""
    conditions = scenario.cluster.driver(DRIVER).get("status", {}).get("conditions", ())
    return next((item for item in conditions if item["type"] == "Unloading"), {})


def wait_until(scenario: Scenario, what: str, is_so: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    scenario.cluster.wait(what, lambda: is_so() or None, timeout=SETTLE_SECONDS)
