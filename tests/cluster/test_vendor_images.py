"""Vendors' images on real nodes: loaded by our loader and by their own program, proven, kept, and taken away.

The tests build on each other, in the order they are written in.
"""

from collections.abc import Iterator

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import READY_LABEL, Scenario
from driver_builder.tasks.proof_pod import PROOF
from kube_api.resources import PODS
from tests.support.real_parts import acts, vendor_images
from tests.support.real_parts.chain import until_every_stage
from tests.support.real_parts.vendor_images import VendorsDriver, parameter, proofs

pytestmark = [pytest.mark.long, pytest.mark.chain]

VERSION = "1.0.1"


@pytest.fixture(scope="module")
def vendors(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorsDriver]:
    """The driver, which nobody has applied yet."""
    with vendor_images.vendors_driver(scenario, tmp_path_factory.mktemp("vendors")) as made:
        yield made


def test_images_that_nobody_trusts_are_blocked(scenario: Scenario, vendors: VendorsDriver) -> None:
    """The targets of both nodes are ``NoIdentity``: nothing says which modules their images have."""
    vendor_images.apply(scenario, vendors)
    for guest in vendors.guests:
        acts.wait_for_reason(scenario, guest.kernel.release, "NoIdentity")


def test_trusted_images_are_loaded_both_ways_and_every_stage_follows(
    scenario: Scenario, vendors: VendorsDriver
) -> None:
    """Each way has its own parameter, a workload computes, and what the program has loaded has a proof pod."""
    vendor_images.trust(scenario)
    vendor_images.wait_for_every_stage(scenario, vendors)
    assert (parameter(vendors.own), parameter(vendors.program)) == ("Y", "N")
    assert scenario.run_workload("vendor-factorial").endswith("10! = 3628800")
    assert list(proofs(scenario).values()) == [vendors.program.name]


def test_an_edit_of_version_and_timeout_replaces_no_pod(scenario: Scenario, vendors: VendorsDriver) -> None:
    """The nodes get the new version, and keep pods and modules."""
    before = pods_and_modules(scenario, vendors)
    own, program = vendors.mappings
    edited = {**program, "container": {**program["container"], "timeout": "10m"}}
    vendor_images.edit(scenario, version=VERSION, kernelMappings=[own, edited])
    acts.wait_for("the nodes have the new version", lambda: versions(scenario) == {VERSION})
    assert pods_and_modules(scenario, vendors) == before


def test_a_proof_pod_that_is_deleted_is_made_again_and_takes_no_label(
    scenario: Scenario, vendors: VendorsDriver
) -> None:
    """Both nodes keep version, pods and modules."""
    before = pods_and_modules(scenario, vendors)
    (proof,) = scenario.cluster.pods(PROOF.label)
    scenario.cluster.client.delete(PODS.path(namespace=NAMESPACE, name=proof["metadata"]["name"]))
    acts.wait_for("it is proven again", lambda: proofs(scenario).keys() - {proof["metadata"]["uid"]})
    assert versions(scenario) == {VERSION}
    assert pods_and_modules(scenario, vendors) == before


def test_after_a_reboot_what_the_program_loads_is_proven_anew(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Every stage comes back, the driver's pods are those of before, and one proof pod is left."""
    pods, known, guest = acts.pod_uids(scenario), proofs(scenario), vendors.program
    guest.reboot()
    guest.wait_ready(timeout=acts.SETTLE_SECONDS)
    acts.wait_for("the new boot is proven", lambda: proofs(scenario).keys() - known.keys())
    scenario.wait_for_ready()
    until_every_stage(scenario, guest.name)
    assert (acts.pod_uids(scenario), len(proofs(scenario))) == (pods, 1)


def test_a_module_that_is_removed_by_hand_is_loaded_by_another_pod(scenario: Scenario, vendors: VendorsDriver) -> None:
    """The program loads it with the same parameter, and the proof of the pod before goes."""
    guest = vendors.program
    before = (None, acts.pod_uids(scenario)[guest.name])
    guest.check("rmmod edudrv")
    acts.wait_for("its pod is replaced", lambda: acts.pod_uids(scenario).get(guest.name) not in before)
    scenario.wait_for_ready()
    assert parameter(guest) == "N"
    acts.wait_for("the proof of the pod before is gone", lambda: len(scenario.cluster.pods(PROOF.label)) == 1)


def test_a_driver_that_is_deleted_leaves_neither_modules_nor_proofs(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Our loader unloads on one node, and the program on the other."""
    vendor_images.assert_it_leaves_nothing(scenario, vendors)


def pods_and_modules(scenario: Scenario, vendors: VendorsDriver) -> tuple[dict[str, str], list[str]]:
    """Return the uids of the driver's pods, and what is live on the nodes."""
    return acts.pod_uids(scenario), [acts.live_module(guest) for guest in vendors.guests]


def versions(scenario: Scenario) -> set[str | None]:
    """Return what the ready labels of the nodes say."""
    return {scenario.cluster.labels(name).get(READY_LABEL) for name in scenario.guests}
