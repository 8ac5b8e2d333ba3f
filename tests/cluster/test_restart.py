"""A controller killed between two actions: the next one ends in the same state and builds no pushed key again.

The moment is not left to luck: the registry is frozen (SIGSTOP) when a build starts, so that the controller stands
before its push until the test has done what it came for. The API server is frozen for the push alone: a controller
that cannot renew its Lease ends, and a build may take longer than that.
"""

from contextlib import ExitStack

import pytest

from demo.scenario import DRIVER, Scenario
from driver_builder.model.image_state import Absent, ImageState, Present
from tests.support.real_parts import acts

REGISTRY, API_SERVER = "registry", "kube-apiserver"


@pytest.fixture
def repository(scenario: Scenario) -> str:
    """A repository of the test's own, so that nothing is there yet; the driver is applied, and its first build runs."""
    acts.delete_driver(scenario)
    repository = "drivers/edu-killed"
    scenario.apply_driver(driver_spec={"image": f"{scenario.ground.registry.host}/{repository}"})
    acts.wait_for("a build has started", lambda: acts.started_builds(scenario, repository))
    return repository


def test_killed_between_build_and_push_and_between_push_and_roll_out(scenario: Scenario, repository: str) -> None:
    """The next controller builds and pushes what was not pushed, rolls out what was, and builds that not again.

    One installation: the image of the first kernel is built and verified, that of the other one pushed and no node told
    when SIGKILL comes.
    """

    def state(build: tuple[str, str]) -> type[ImageState]:
        return type(acts.inspect(scenario, build[1], repository))

    with acts.stopped(scenario, REGISTRY):
        first, *_ = acts.started_builds(scenario, repository)
        acts.wait_for("it is verified", lambda: f"build {first[0]}: verified" in acts.controller_log(scenario))
        acts.kill_controller(scenario)
    assert state(first) is Absent

    def others() -> list[tuple[str, str]]:
        return [started for started in acts.started_builds(scenario, repository) if started != first]

    acts.wait_for("the other kernel's build has started", others)
    with ExitStack() as no_registry, ExitStack() as no_api_server:
        no_registry.enter_context(acts.stopped(scenario, REGISTRY))
        (second,) = others()
        acts.wait_for("it is verified", lambda: f"build {second[0]}: verified" in acts.controller_log(scenario))
        no_api_server.enter_context(acts.stopped(scenario, API_SERVER))
        no_registry.close()
        acts.wait_for("it is pushed", lambda: state(second) is Present, every=0.02)
        acts.kill_controller(scenario)
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    assert state(first) is Present
    assert others() == [second], "it was pushed: nobody builds it again"
    assert acts.started_builds(scenario, repository).count(first) == 2, "once before the kill and once after it"
    assert {target["state"] for target in scenario.cluster.targets(DRIVER).values()} == {"Ready"}
