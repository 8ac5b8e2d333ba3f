"""A controller killed between two actions: the next one ends in the same state and builds no pushed key again.

The moment is not left to luck: the registry is frozen (SIGSTOP) when a build starts, so that the controller stands
before its push until the test has done what it came for.
"""

import pytest

from demo.scenario import DRIVER, Scenario
from driver_builder.model.image_state import Absent, Present
from tests.support import acts

REGISTRY, API_SERVER = "registry", "kube-apiserver"


@pytest.fixture(autouse=True)
def _no_driver(story: Scenario) -> None:
    acts.delete_driver(story)


def apply_into(story: Scenario, repository: str) -> None:
    """Apply the driver with a repository of its own, so that nothing is there yet, and wait for its first build."""
    story.apply_driver(driver_spec={"image": f"{story.ground.registry.host}/{repository}"})
    acts.wait_for("a build has started", lambda: acts.started_builds(story, repository))


def test_killed_between_build_and_push(story: Scenario) -> None:
    """Built, verified and not pushed: nothing is in the registry, and the next controller builds and pushes it."""
    repository = "drivers/edu-killed-before-push"
    apply_into(story, repository)
    with acts.stopped(story, REGISTRY):
        (key, tag), *_ = acts.started_builds(story, repository)
        acts.wait_for("it is verified", lambda: f"build {key}: verified" in acts.controller_log(story))
        acts.kill_controller(story)
    assert isinstance(acts.inspect(story, tag, repository), Absent)
    story.wait_for_builds()
    story.wait_for_ready()
    assert isinstance(acts.inspect(story, tag, repository), Present)
    builds = [started for started in acts.started_builds(story, repository) if started[0] == key]
    assert builds == [(key, tag)] * 2, "once before the kill and once after it: the key was not finished"
    assert story.cluster.targets(DRIVER)[acts.kernel_of(story, key)]["state"] == "Ready"


def test_killed_between_push_and_roll_out(story: Scenario) -> None:
    """Pushed, and nobody told the nodes: the next controller rolls it out and builds nothing."""
    repository = "drivers/edu-killed-after-push"
    apply_into(story, repository)
    with acts.stopped(story, API_SERVER):
        with acts.stopped(story, REGISTRY):
            (key, tag), *_ = acts.started_builds(story, repository)
            acts.wait_for("it is verified", lambda: f"build {key}: verified" in acts.controller_log(story))
        acts.wait_for("it is pushed", lambda: isinstance(acts.inspect(story, tag, repository), Present), every=0.02)
        acts.kill_controller(story)
    story.wait_for_builds()
    story.wait_for_ready()
    assert [started for started in acts.started_builds(story, repository) if started[0] == key] == [(key, tag)]
    assert {target["state"] for target in story.cluster.targets(DRIVER).values()} == {"Ready"}
