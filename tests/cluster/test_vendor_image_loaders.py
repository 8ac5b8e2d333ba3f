"""Who loads a vendor's image is changed on real nodes: a program follows our loader, and our loader a program.

The tests build on each other, in the order they are written in.
"""

import time
from collections.abc import Iterator

import pytest

from demo.cluster import Json
from demo.scenario import Scenario
from tests.support.real_parts import acts, vendor_images
from tests.support.real_parts.chain import chain_on, until_every_stage
from tests.support.real_parts.vendor_images import VendorsDriver, parameter, proofs

pytestmark = [pytest.mark.long, pytest.mark.chain]


@pytest.fixture(scope="module")
def vendors(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorsDriver]:
    """The driver at work on both nodes, with every stage."""
    with vendor_images.vendors_driver(scenario, tmp_path_factory.mktemp("vendors")) as made:
        vendor_images.start(scenario, made)
        yield made


def test_a_program_and_our_loader_change_places(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Both nodes have other pods and every stage, and the plugin leaves before the module each time."""
    own, program = vendors.guests
    swapped, before = _swapped(scenario, vendors), acts.pod_uids(scenario)

    def is_swapped() -> bool:
        pods = acts.pod_uids(scenario)
        return set(proofs(scenario).values()) == {own.name} and not set(pods.values()) & set(before.values())

    began = time.monotonic()
    with chain_on(own) as first, chain_on(program) as second:
        vendor_images.edit(scenario, kernelMappings=swapped)
        acts.wait_until(scenario, "the nodes have other pods, and one a proof", is_swapped)
        for guest in (own, program):
            until_every_stage(scenario, guest.name)
            vendor_images.wait_for_no_wave(scenario, guest)
    print(f"\na wave in which a program and our loader change places: {time.monotonic() - began:.1f} s")
    assert ("none", "yes") not in (*first, *second)
    assert parameter(own) == "N"


def test_a_driver_whose_loaders_changed_leaves_neither_modules_nor_proofs(
    scenario: Scenario, vendors: VendorsDriver
) -> None:
    """It is deleted as each node has it now."""
    vendor_images.assert_it_leaves_nothing(scenario, vendors)


def _swapped(scenario: Scenario, vendors: VendorsDriver) -> list[Json]:
    """Return the kernel mappings with a program for our loader's node, and our loader for the program's image."""
    own, program = vendors.guests
    image = vendor_images.push_next(scenario, vendors, own)
    # By default the module's parameter is 1, which it has from our loader.
    container = {"args": ["use_irq=0"], "timeout": "5m"}
    return [
        {"literal": own.kernel.release, "image": image, "loader": "image", "container": container},
        {"literal": program.kernel.release, "image": vendors.mappings[1]["image"]},
    ]
