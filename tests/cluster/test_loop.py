"""The demo's scenario, step by step, asserted against the API server, the registry and inside the guests.

The tests build on each other, in the order they are written in.
"""

import json
import re
import time

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, EDU_LABEL, READY_LABEL, REPOSITORY, Scenario
from demo.stage import LOAD_SECONDS
from driver_builder.model import images
from driver_builder.model.image_state import Present
from driver_builder.registry.registry import RegistryClient
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES, PODS
from tests.kernel.test_loader_on_real_kernels import VERSIONS
from tests.support.loopback import LOOPBACK
from tests.support.real_parts import acts, product

pytestmark = pytest.mark.chain

MIB = 1 << 20
TELL = r"""
. /etc/os-release
echo "system|$PRETTY_NAME"
echo "codename|$VERSION_CODENAME"
echo "kernel|$(uname -r)"
echo "containerd|$(containerd --version | cut -d ' ' -f 3)"
echo "crun|$(crun --version | sed -n 's/^crun version //p')"
echo "kmod|$(/usr/bin/kmod --version | sed -n 's/^kmod version //p')"
echo "kubelet|$(kubelet --version | cut -d ' ' -f 2)"
"""
"""Prints what a guest runs, a part on each line."""


def image_labels(scenario: Scenario, kernel: str) -> dict[str, str]:
    """Read the labels of the image that the driver's status names for a kernel."""
    target = scenario.cluster.targets(DRIVER)[kernel]
    registry = RegistryClient(scenario.ground.registry.host, plain_http=True, reach=LOOPBACK)
    state = registry.inspect(REPOSITORY, target["imageDigest"])
    assert isinstance(state, Present), state
    return dict(state.labels)


def test_the_images_of_both_programs_are_small_and_not_roots(scenario: Scenario) -> None:
    """Over their base, which is the user's choice; they say what they are."""
    assert {"nfd-worker", "driver-builder"} <= scenario.images.keys()
    assert product.faults(scenario.stage.engine, scenario.images, scenario.ground.base_image) == []


def test_nodes_carry_the_labels_of_their_own_kernel_and_devices(scenario: Scenario) -> None:
    """Labels are those that Node Feature Discovery would set, and annotations say which boot they are of."""
    for guest in scenario.guests.values():
        node = scenario.cluster.node(guest.name)
        labels, annotations = node["metadata"]["labels"], node["metadata"]["annotations"]
        running = guest.run("uname -r")[1].strip()
        assert running == guest.kernel.release == node["status"]["nodeInfo"]["kernelVersion"]
        assert labels[names.KERNEL_VERSION_LABEL] == names.label_value(running)
        assert labels[f"{names.FEATURE_LABEL_PREFIX}/kernel-version.major"] == running.split(".")[0]
        assert labels[f"{names.FEATURE_LABEL_PREFIX}/kernel-version.minor"] == running.split(".")[1]
        assert labels[names.OS_ID_LABEL] == "debian"
        version = VERSIONS[guest.kernel.codename]
        assert labels[names.OS_VERSION_LABEL] == version
        assert labels[f"{names.FEATURE_LABEL_PREFIX}/system-os_release.VERSION_ID.major"] == version
        assert labels[EDU_LABEL] == "true"
        assert labels[f"{names.FEATURE_LABEL_PREFIX}/cpu-cpuid.ADX"] == "true"
        boot_id = guest.run("cat /proc/sys/kernel/random/boot_id")[1].strip()
        assert annotations[names.BOOT_ID_ANNOTATION] == boot_id == node["status"]["nodeInfo"]["bootID"]
        assert annotations[names.KERNEL_VERSION_ANNOTATION] == running


def test_one_node_is_a_debian_12_and_the_other_a_debian_13(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """System, kernel, runtime and tools are of one release on each, as the guest itself says; kubelet is the same."""
    for guest in scenario.guests.values():
        told = dict(line.split("|") for line in guest.check(TELL).splitlines())
        with capsys.disabled():
            print(f"\n{guest.name}: {', '.join(f'{part} {version}' for part, version in told.items())}", end="")
        assert told["codename"] == guest.kernel.codename
        info = scenario.cluster.node(guest.name)["status"]["nodeInfo"]
        # Debian's packages add to the version of the source that they are made of.
        runtime = info["containerRuntimeVersion"].removeprefix("containerd://").removeprefix("v")
        assert re.fullmatch(rf"{re.escape(runtime)}([~+].*)?", told["containerd"])
        assert told["kubelet"] == info["kubeletVersion"]
        assert (told["kernel"], told["system"]) == (info["kernelVersion"], info["osImage"])
    assert [guest.kernel.codename for guest in scenario.guests.values()] == ["bookworm", "trixie"]
    # kmod's: the shell would take busybox's.
    module = scenario.guests["guest-b"].check(
        "/usr/sbin/modprobe ifb && /usr/sbin/rmmod ifb && /usr/sbin/modinfo -n ifb"
    )
    assert module.strip().endswith("/ifb.ko.xz")


def test_an_image_is_built_and_pushed_for_each_kernel(scenario: Scenario) -> None:
    """Each image names its kernel, its build key and the identity of its module, and is small."""
    scenario.apply_driver()
    scenario.wait_for_builds()
    targets = scenario.cluster.targets(DRIVER)
    assert set(targets) == {guest.kernel.release for guest in scenario.guests.values()}
    assert len({target["imageDigest"] for target in targets.values()}) == len(targets)
    for kernel, target in targets.items():
        labels = image_labels(scenario, kernel)
        assert labels[images.KERNEL_LABEL] == kernel
        assert target["image"].endswith(labels[images.KEY_LABEL])
        assert [module["name"] for module in json.loads(labels[images.MODULES_LABEL])] == ["edudrv"]
        assert acts.image_size(scenario, kernel) < MIB


def test_ready_means_loaded_bound_and_of_this_image(scenario: Scenario) -> None:
    """Where the ready label is, the module is live with the image's srcversion and bound to the device."""
    scenario.wait_for_ready()
    for guest in scenario.guests.values():
        assert_proven(scenario, guest.name)
    assert scenario.cluster.condition(DRIVER, "Ready")["reason"] == "AllNodesReady"
    assert scenario.cluster.condition(DRIVER, "Degraded")["status"] == "False"
    assert READY_LABEL not in scenario.cluster.labels(scenario.ground.host_node_name)


def assert_proven(scenario: Scenario, name: str) -> None:
    """Look into a guest for what its ready label claims."""
    guest = scenario.guests[name]
    assert scenario.cluster.labels(name)[READY_LABEL] == "1.0.0"
    loaded = [line.split() for line in guest.run("cat /proc/modules")[1].splitlines()]
    assert [words[4] for words in loaded if words and words[0] == "edudrv"] == ["Live"]
    modules = json.loads(image_labels(scenario, guest.kernel.release)[images.MODULES_LABEL])
    assert guest.run("cat /sys/module/edudrv/srcversion")[1].strip() == modules[0]["identity"]
    assert len(scenario.bound_devices(guest)) == 1


def test_each_target_has_a_daemon_set_of_its_own_by_digest(scenario: Scenario) -> None:
    """Nodes are given the digest that was verified, never a tag."""
    digests = {target["imageDigest"] for target in scenario.cluster.targets(DRIVER).values()}
    found = {
        item["spec"]["template"]["spec"]["containers"][0]["image"].partition("@")[2]
        for item in scenario.cluster.daemon_sets(DRIVER)
    }
    assert found == digests
    for item in scenario.cluster.daemon_sets(DRIVER):
        assert item["metadata"]["ownerReferences"][0]["kind"] == "DriverContainer"


def test_a_workload_that_selects_the_label_computes_on_the_device(scenario: Scenario) -> None:
    """The Job runs on a ready node and reads the right factorial from /dev/edu0."""
    assert scenario.run_workload() == "10! = 3628800"


@pytest.fixture(scope="module")
def removed_by_hand(scenario: Scenario) -> str:
    """Remove the module of guest-b while guest-a reboots: one emulated node need not wait for the other.

    Returns the uid of the pod that had loaded it.
    """
    guest = scenario.guests["guest-b"]
    before = acts.pod_uids(scenario)[guest.name]
    assert guest.run("rmmod edudrv")[0] == 0
    return before


@pytest.mark.usefixtures("removed_by_hand")
def test_a_node_with_a_new_kernel_gets_its_driver_by_itself(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a reboot into a third kernel the driver is built, loaded and proven; the old DaemonSet is gone."""
    old = scenario.guests["guest-a"].kernel.release
    before = {item["metadata"]["name"] for item in scenario.cluster.daemon_sets(DRIVER)}
    seconds = scenario.reboot_into_third_kernel()
    with capsys.disabled():
        print(f"\na new kernel: the driver is built and proven {seconds:.1f} s after guest-a is Ready", flush=True)
    new = scenario.guests["guest-a"].kernel.release
    assert_proven(scenario, "guest-a")
    assert new in scenario.cluster.targets(DRIVER)
    assert old not in scenario.cluster.targets(DRIVER)
    after = {item["metadata"]["name"] for item in scenario.cluster.daemon_sets(DRIVER)}
    assert len(after) == 2
    assert len(after & before) == 1


def test_a_module_removed_by_hand_is_loaded_again(scenario: Scenario, removed_by_hand: str) -> None:
    """Ready is a fact: a module that is gone from the kernel is noticed, its pod is replaced and loads it."""
    wait_for_another_pod(scenario, "guest-b", removed_by_hand)
    scenario.wait_for_ready()
    assert_proven(scenario, "guest-b")
    assert scenario.run_workload("edu-factorial-again") == "10! = 3628800"


def watch_labels(scenario: Scenario, *, times: int) -> None:
    """Look every half a second whether all nodes are ready."""
    for _ in range(times):
        assert all(READY_LABEL in scenario.cluster.labels(name) for name in scenario.guests)
        time.sleep(0.5)


def delete_pods(scenario: Scenario, selector: str, node: str | None = None) -> None:
    """Delete pods, all or those of one node; their owners make new ones."""
    for pod in scenario.cluster.pods(selector):
        if node in (None, pod["spec"]["nodeName"]):
            scenario.cluster.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))


def test_events_report_each_step(scenario: Scenario) -> None:
    """Each step that matters is an Event on the DriverContainer."""
    acts.wait_for_events(scenario, "BuildStarted", "RollingOut", "TargetReady")


def test_what_changes_nothing_on_a_node_moves_nothing(scenario: Scenario) -> None:
    """Another version of the operating system on the same kernel, and other tolerations: pods, modules, labels stay."""
    guest = scenario.guests["guest-b"]
    pods, module = acts.pod_uids(scenario), acts.live_module(guest)
    labels = {names.OS_VERSION_LABEL: f"{scenario.cluster.labels(guest.name)[names.OS_VERSION_LABEL]}.1"}
    scenario.cluster.client.patch(NODES.path(name=guest.name), {"metadata": {"labels": labels}})
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(
        path, {"spec": {"tolerations": [{"operator": "Exists"}, {"key": "gpu", "operator": "Exists"}]}}
    )
    watch_labels(scenario, times=16)
    # A probe that a busy guest did not answer in time is told and moves nothing either.
    scenario.wait_for_ready()
    assert acts.pod_uids(scenario) == pods
    assert acts.live_module(guest) == module


def wait_for_another_pod(scenario: Scenario, node: str, uid: str) -> None:
    """Wait until the driver's pod of a node is another one that has loaded the driver: the label may stay meanwhile."""
    scenario.cluster.wait(
        f"the driver pod of {node} is replaced, and ready",
        lambda: has_another_pod(scenario, node, uid) or None,
        timeout=LOAD_SECONDS,
        seen=lambda: scenario.cluster.describe_targets(DRIVER),
    )


def has_another_pod(scenario: Scenario, node: str, uid: str) -> bool:
    """Return whether the driver's only pod of a node is another one, and Ready."""
    pods = [pod for pod in scenario.cluster.driver_pods(DRIVER) if pod["spec"].get("nodeName") == node]
    conditions = [item for pod in pods for item in pod["status"].get("conditions") or () if item["type"] == "Ready"]
    return uid not in {pod["metadata"]["uid"] for pod in pods} and [item["status"] for item in conditions] == ["True"]


def test_a_driver_that_is_deleted_leaves_nothing(scenario: Scenario) -> None:
    """Its modules are unloaded on both nodes; labels, DaemonSets and pods are gone with the DriverContainer."""
    scenario.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
    scenario.wait_until_driver_is_gone()
    assert_gone(scenario)


def assert_gone(scenario: Scenario) -> None:
    """Find nothing of the driver, in the cluster and in the guests."""
    assert scenario.cluster.daemon_sets(DRIVER) == []
    assert scenario.cluster.driver_pods(DRIVER) == []
    for guest in scenario.guests.values():
        assert READY_LABEL not in scenario.cluster.labels(guest.name)
        assert guest.run("ls /sys/module/edudrv")[0] != 0
        assert guest.run("ls /dev/edu0")[0] != 0
