"""One cluster for all end-to-end tests: two guests on different kernels, our programs deployed as pods."""

import pytest

from demo.scenario import Scenario
from testbed import PlainLines, Testbed
from tests.support.real_parts import order


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of nodes without our programs first: the scenario deploys them on the same nodes.

    Before them those with a cluster of their own, so that no two have to be up at the same time.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    return 0 if "own_ground" in fixtures else 2 if "scenario" in fixtures else 1


@pytest.fixture(scope="session")
def booted(ground: Testbed, request: pytest.FixtureRequest) -> Scenario:
    """The scenario up to two nodes, on which nothing runs yet."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        told = Scenario(ground, PlainLines())
        told.build_product()
        told.boot_nodes()
    return told


@pytest.fixture(scope="session")
def scenario(booted: Scenario, request: pytest.FixtureRequest) -> Scenario:
    """The scenario up to two labelled nodes; what comes after is the tests'."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        booted.deploy_programs()
        booted.wait_for_labels()
    return booted


@pytest.fixture(scope="module", autouse=True)
def _cluster_in_order(request: pytest.FixtureRequest) -> None:
    """Restore the cluster before each file that uses it, whatever the file before it left."""
    of_this_file = [item for item in request.session.items if item.path == request.path]
    if any("scenario" in getattr(item, "fixturenames", ()) for item in of_this_file):
        order.restore(request.getfixturevalue("scenario"))


@pytest.fixture(scope="module")
def working_driver(scenario: Scenario) -> None:
    """Have the driver at work on both nodes."""
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
