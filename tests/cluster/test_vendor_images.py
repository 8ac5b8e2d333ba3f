"""Vendors' images on real nodes: modules as KMM's kmod images have them, and a program that loads its own."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.scenario import DRIVER, READY_LABEL, Scenario
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.images import ImageRef
from driver_builder.objects.proof_pod import PROOF_LABEL
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import DEPLOYMENTS, DRIVER_CONTAINERS, PODS
from testbed.guest.guest import Guest
from testbed.testbed import Testbed
from tests.cluster.test_drain import DRAIN, USER, deployment, is_running, users
from tests.cluster.test_pod_on_node import NAMESPACE, build
from tests.support.real_parts import acts
from tests.support.real_parts.chain import EVERY, chain, chain_on, controller_with_agent, stages_of, until_every_stage
from tests.support.real_parts.cluster_setup import documents, path_of
from tests.support.real_parts.images import derive

pytestmark = [pytest.mark.long]

DRAIN_RIGHTS = "driver-builder/drain.yaml"

# As NVIDIA's: it unloads what it finds, loads its own, and unloads it when it is told to end.
PROGRAM = """
unload() { rmmod edudrv 2>/dev/null; }
trap 'unload; exit 0' TERM
unload
insmod "/opt/lib/modules/$(uname -r)/updates/edudrv.ko" "$@" || exit 1
while :; do sleep 1000 & wait; done
"""
WITH_PROGRAM = (
    "COPY busybox program /",
    "RUN chmod 0755 /busybox",
    'ENTRYPOINT ["/busybox", "sh", "/program"]',
    'CMD ["use_irq=1"]',
)


def push_image(ground: Testbed, built: ImageRef, name: str, *commands: str) -> str:
    """Make an image with the modules of a built one where kmod images have them, push it, and return its reference."""
    repository = f"{ground.registry.host}/vendor/{name}"
    modules = f"COPY --from={built} /lib/modules/ /opt/lib/modules/"
    files = {"busybox": Path("/bin/busybox").read_bytes(), "program": PROGRAM.encode()}
    derive(ground, f"{repository}:1", files, modules, *commands)
    with docker_engine(ground.engine.socket) as api:
        for line in api.push(repository, tag="1", auth_config=ground.registry.auth_config, stream=True, decode=True):
            assert "error" not in line, line
    return f"{repository}:1"


@pytest.fixture(scope="module", autouse=True)
def _agent(scenario: Scenario) -> Iterator[None]:
    """Let the controller have the image of the device agent, which the nodes pull."""
    with controller_with_agent(scenario):
        yield


@pytest.fixture
def mappings(scenario: Scenario, tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """A kmod image for one node, and an image with its own program for the other; the driver goes afterwards."""
    first, second = scenario.guests.values()
    images = {}
    for guest, commands in ((first, ()), (second, WITH_PROGRAM)):
        folder = tmp_path / guest.name
        folder.mkdir()
        built, _ = build(scenario.ground, guest.kernel, folder)
        images[guest.name] = push_image(scenario.ground, built, guest.name, *commands)
        push_image(scenario.ground, built, f"{guest.name}-next", *WITH_PROGRAM, "LABEL next=true")
    yield [
        {"literal": first.kernel.release, "image": images[first.name]},
        {
            "literal": second.kernel.release,
            "image": images[second.name],
            "loader": "image",
            "container": {
                "args": ["use_irq=0"],
                "hostPaths": [{"path": "/run/edu", "propagation": "Bidirectional"}, {"path": "/lib/firmware"}],
                "timeout": "5m",
            },
        },
    ]
    for left in (DEPLOYMENTS.path(namespace=NAMESPACE, name=USER), *map(path_of, documents(DRAIN_RIGHTS))):
        with contextlib.suppress(NotFound):
            scenario.cluster.client.delete(left)
    acts.delete_driver(scenario)


def parameter(guest: Guest) -> str:
    """Return what the live module was given."""
    return guest.check("cat /sys/module/edudrv/parameters/use_irq").strip()


def versions(scenario: Scenario) -> set[str | None]:
    """Return what the ready labels of the nodes say."""
    return {scenario.cluster.labels(name).get(READY_LABEL) for name in scenario.guests}


def proofs(scenario: Scenario) -> dict[str, str]:
    """Return the nodes of the proof pods that have ended well, by the uids of these pods."""
    pods = scenario.cluster.pods(PROOF_LABEL)
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Succeeded"
    }


def _wave_of_programs(scenario: Scenario, guest: Guest, edited: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Upgrade to another image whose program loads: the node is locked and drained, and the label goes with the pod."""
    client, path = scenario.cluster.client, DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.apply(documents(DRAIN_RIGHTS))
    scenario.apply([deployment(scenario.images["loader"], guest.name)])
    acts.wait_until(scenario, "the device is in use", lambda: is_running(scenario))
    before, pods, users_before = proofs(scenario), acts.pod_uids(scenario), users(scenario)
    image = edited[1]["image"].removesuffix(":1") + "-next:1"
    container = {**edited[1]["container"], "args": ["use_irq=1"]}
    mappings = [edited[0], {**edited[1], "image": image, "container": container}]
    seen: set[str] = set()

    def is_proven() -> bool:
        node = scenario.cluster.node(guest.name)
        has_lock = f"{NAMESPACE}/{DRIVER}" in node["metadata"]["annotations"].get(names.LOCK_ANNOTATION, "")
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        seen.update(["drained"] if has_lock and names.UPGRADING_TAINT in taints else [])
        seen.update(["without stages"] if not set(EVERY[1:]) & set(stages_of(scenario, guest.name)) else [])
        return bool(proofs(scenario).keys() - before.keys()) and READY_LABEL in node["metadata"]["labels"]

    began = time.monotonic()
    with chain_on(guest) as moments:
        client.patch(path, {"spec": {"rollout": {"drain": DRAIN}, "kernelMappings": mappings}})
        acts.wait_until(scenario, "what the next image loads is proven", is_proven)
        until_every_stage(scenario, guest.name)
    print(f"\na wave between two images with a program: {time.monotonic() - began:.1f} s on {guest.name}")
    assert seen == {"drained", "without stages"}
    # The program ends when the plugin has left.
    assert ("none", "no") in moments
    assert ("none", "yes") not in moments
    assert parameter(guest) == "Y"
    assert acts.pod_uids(scenario)[guest.name] != pods[guest.name]
    acts.wait_until(
        scenario, "the user is back", lambda: is_running(scenario) and users(scenario).isdisjoint(users_before)
    )
    _wait_for_no_wave(scenario, guest)
    return mappings


def _wave_that_fails(scenario: Scenario, guest: Guest, mappings: list[dict[str, Any]]) -> None:
    """Edit the program to one that ends at once: the wave halts, and the node gets what it had, with its users."""
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    pods, before = acts.pod_uids(scenario), proofs(scenario)
    container = {**mappings[1]["container"], "command": ["/busybox", "sh", "-c", "exit 1"], "timeout": "1m"}
    bad = [mappings[0], {**mappings[1], "container": container}]
    began = time.monotonic()
    scenario.cluster.client.patch(path, {"spec": {"kernelMappings": bad}})
    acts.wait_for_reason(scenario, guest.kernel.release, "RolloutHalted")

    def is_back() -> bool:
        is_labelled = READY_LABEL in scenario.cluster.node(guest.name)["metadata"]["labels"]
        return is_labelled and bool(proofs(scenario).keys() - before.keys()) and is_running(scenario)

    acts.wait_until(scenario, "the node has what it had", is_back)
    print(f"a wave that fails, and back: {time.monotonic() - began:.1f} s on {guest.name}")
    assert acts.pod_uids(scenario)[guest.name] != pods[guest.name]
    assert parameter(guest) == "Y"
    until_every_stage(scenario, guest.name)
    scenario.cluster.client.patch(path, {"spec": {"kernelMappings": mappings}})
    _wait_for_no_wave(scenario, guest)
    scenario.cluster.client.delete(DEPLOYMENTS.path(namespace=NAMESPACE, name=USER))
    acts.wait_until(scenario, "nothing uses the device", lambda: not users(scenario))


def _wave_between_loaders(scenario: Scenario, mappings: list[dict[str, Any]]) -> None:
    """Let a program follow our loader on one node, and our loader the program on the other."""
    own, program = scenario.guests.values()
    container = {"args": ["use_irq=1"], "timeout": "5m"}
    image = mappings[0]["image"].removesuffix(":1") + "-next:1"
    swapped = [
        {"literal": own.kernel.release, "image": image, "loader": "image", "container": container},
        {"literal": program.kernel.release, "image": mappings[1]["image"]},
    ]
    before, began = acts.pod_uids(scenario), time.monotonic()

    def is_swapped() -> bool:
        pods = acts.pod_uids(scenario)
        return set(proofs(scenario).values()) == {own.name} and not set(pods.values()) & set(before.values())

    with chain_on(own) as first, chain_on(program) as second:
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
        scenario.cluster.client.patch(path, {"spec": {"kernelMappings": swapped}})
        acts.wait_until(scenario, "the nodes have other pods, and one a proof", is_swapped)
        for guest in (own, program):
            until_every_stage(scenario, guest.name)
            _wait_for_no_wave(scenario, guest)
    print(f"a wave in which a program and our loader change places: {time.monotonic() - began:.1f} s")
    assert ("none", "yes") not in (*first, *second)
    assert parameter(own) == "Y"


def _wait_for_no_wave(scenario: Scenario, guest: Guest) -> None:
    def is_over() -> bool:
        node = scenario.cluster.node(guest.name)
        kept = {names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION} & node["metadata"]["annotations"].keys()
        has_wave = "rollout" in scenario.cluster.driver(DRIVER).get("status", {})
        return not kept and not node["spec"].get("taints") and not has_wave

    acts.wait_until(scenario, "the wave is over", is_over)


def test_vendors_images_are_loaded_proven_and_taken_away(scenario: Scenario, mappings: list[dict[str, Any]]) -> None:
    """Blocked until trusted; then ready by both ways; an edit replaces no pod; what is lost comes back.

    What an image's own program has loaded is proven by a pod of its own, also after a reboot of the node; validation,
    device plugin and its validation follow. A wave between two such images drains the node; one whose program ends at
    once gives it back as it was. Who loads can be changed.
    """
    own, program = scenario.guests.values()
    spec = {"kernelMappings": mappings, "module": {"names": ["edudrv"]}, **chain(scenario)}
    scenario.apply_driver(driver_spec=spec)
    for guest in (own, program):
        acts.wait_for_reason(scenario, guest.kernel.release, "NoIdentity")
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(path, {"spec": {"module": {"trustImage": True}}})
    scenario.wait_for_ready()
    assert (parameter(own), parameter(program)) == ("Y", "N")
    for guest in (own, program):
        until_every_stage(scenario, guest.name)
    assert scenario.run_workload("vendor-factorial").endswith("10! = 3628800")
    assert list(proofs(scenario).values()) == [program.name]

    pods, modules = acts.pod_uids(scenario), [acts.live_module(guest) for guest in (own, program)]
    container = {**mappings[1]["container"], "timeout": "10m"}
    edited = [mappings[0], {**mappings[1], "container": container}]
    scenario.cluster.client.patch(path, {"spec": {"version": "1.0.1", "kernelMappings": edited}})
    acts.wait_for("the nodes have the new version", lambda: versions(scenario) == {"1.0.1"})
    assert (acts.pod_uids(scenario), [acts.live_module(guest) for guest in (own, program)]) == (pods, modules)

    (proof,) = scenario.cluster.pods(PROOF_LABEL)
    scenario.cluster.client.delete(PODS.path(namespace=NAMESPACE, name=proof["metadata"]["name"]))
    acts.wait_for("it is proven again", lambda: proofs(scenario).keys() - {proof["metadata"]["uid"]})
    assert versions(scenario) == {"1.0.1"}
    assert (acts.pod_uids(scenario), [acts.live_module(guest) for guest in (own, program)]) == (pods, modules)

    next_image = _wave_of_programs(scenario, program, edited)
    assert acts.pod_uids(scenario)[own.name] == pods[own.name]
    pods = acts.pod_uids(scenario)
    _wave_that_fails(scenario, program, next_image)
    pods = {**acts.pod_uids(scenario), own.name: pods[own.name]}

    known = proofs(scenario)
    program.reboot()
    program.wait_ready(timeout=acts.SETTLE_SECONDS)
    acts.wait_for("the new boot is proven", lambda: proofs(scenario).keys() - known.keys())
    scenario.wait_for_ready()
    until_every_stage(scenario, program.name)
    assert (acts.pod_uids(scenario), len(proofs(scenario))) == (pods, 1)

    program.check("rmmod edudrv")
    before = (None, pods[program.name])
    acts.wait_for("its pod is replaced", lambda: acts.pod_uids(scenario).get(program.name) not in before)
    scenario.wait_for_ready()
    assert parameter(program) == "Y"
    acts.wait_for("the proof of the pod before is gone", lambda: len(scenario.cluster.pods(PROOF_LABEL)) == 1)
    _wave_between_loaders(scenario, next_image)
    acts.delete_driver(scenario)
    for guest in (own, program):
        assert guest.run("ls /sys/module/edudrv")[0] != 0
    assert scenario.cluster.pods(PROOF_LABEL) == []
