"""Waves between vendors' images whose own programs load: the node is drained, and returns from a program that fails.

The tests build on each other, in the order they are written in.
"""

import contextlib
import time
from collections.abc import Iterator

import pytest

from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, READY_LABEL, Scenario
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import DEPLOYMENTS
from tests.cluster.test_drain import USER, holder, is_running, users
from tests.support.real_parts import acts, vendor_images
from tests.support.real_parts.chain import EVERY, chain_on, stages_of, until_every_stage
from tests.support.real_parts.vendor_images import VendorsDriver, parameter, proofs

pytestmark = [pytest.mark.long, pytest.mark.chain]


@pytest.fixture(scope="module")
def vendors(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorsDriver]:
    """The driver at work on both nodes, with every stage."""
    with vendor_images.vendors_driver(scenario, tmp_path_factory.mktemp("vendors")) as made:
        vendor_images.start(scenario, made)
        yield made


@pytest.fixture(scope="module")
def upgraded(scenario: Scenario, vendors: VendorsDriver) -> tuple[Json, Json]:
    """Return the kernel mappings with another image of the program, and another argument."""
    own, program = vendors.mappings
    image = vendor_images.push_next(scenario, vendors, vendors.program)
    return own, {**program, "image": image, "container": {**program["container"], "args": ["use_irq=1"]}}


@pytest.fixture(scope="module", autouse=True)
def _user(scenario: Scenario, vendors: VendorsDriver) -> Iterator[None]:
    """Let a pod use the device of the node with the program."""
    scenario.apply([holder(scenario.images["loader"], vendors.program.name)])
    try:
        acts.wait_until(scenario, "the device is in use", lambda: is_running(scenario))
        yield
    finally:
        with contextlib.suppress(NotFound):
            scenario.cluster.client.delete(DEPLOYMENTS.path(namespace=NAMESPACE, name=USER))
        acts.wait_until(scenario, "nothing uses the device", lambda: not users(scenario))


def test_a_wave_to_another_image_drains_the_node_and_proves_what_its_program_loads(
    scenario: Scenario, vendors: VendorsDriver, upgraded: tuple[Json, Json]
) -> None:
    """The node is locked and drained, the labels and the plugin go with the pod, and the device's user comes back."""
    guest = vendors.program
    before, pods, users_before = proofs(scenario), acts.pod_uids(scenario), users(scenario)
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
        vendor_images.edit(scenario, kernelMappings=list(upgraded))
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
    vendor_images.wait_for_no_wave(scenario, guest)
    assert acts.pod_uids(scenario)[vendors.own.name] == pods[vendors.own.name]


def test_a_program_that_ends_at_once_halts_the_wave_and_its_node_returns(
    scenario: Scenario, vendors: VendorsDriver, upgraded: tuple[Json, Json]
) -> None:
    """The node gets what it had, proven, with its user and every stage; an edit back ends the wave."""
    guest, (own, program) = vendors.program, upgraded
    pods, before = acts.pod_uids(scenario), proofs(scenario)
    container = {**program["container"], "command": ["/busybox", "sh", "-c", "exit 1"], "timeout": "1m"}
    began = time.monotonic()
    vendor_images.edit(scenario, kernelMappings=[own, {**program, "container": container}])
    acts.wait_for_reason(scenario, guest.kernel.release, "RolloutHalted")

    def is_back() -> bool:
        is_labelled = READY_LABEL in scenario.cluster.node(guest.name)["metadata"]["labels"]
        return is_labelled and bool(proofs(scenario).keys() - before.keys()) and is_running(scenario)

    acts.wait_until(scenario, "the node has what it had", is_back)
    print(f"a wave that fails, and back: {time.monotonic() - began:.1f} s on {guest.name}")
    assert acts.pod_uids(scenario)[guest.name] != pods[guest.name]
    assert parameter(guest) == "Y"
    until_every_stage(scenario, guest.name)
    vendor_images.edit(scenario, kernelMappings=list(upgraded))
    vendor_images.wait_for_no_wave(scenario, guest)
    assert acts.pod_uids(scenario)[vendors.own.name] == pods[vendors.own.name]
