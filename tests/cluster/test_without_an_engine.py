"""driver-builder as ``deploy/patches/builds-in-jobs.yaml`` makes it: no container engine, Kubernetes Jobs build."""

from collections import Counter

import pytest
import yaml

from demo import deploy
from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, Scenario
from driver_builder.builds.job.job_manifest import BUILD_LABEL, job_name
from kube_api.resources import EVENTS, JOBS
from tests.support.real_parts import acts
from tools import product_images

pytestmark = pytest.mark.long

PATCH = deploy.DEPLOY / "patches" / "builds-in-jobs.yaml"
NAME = "driver-builder"


@pytest.fixture(scope="module")
def base_image(scenario: Scenario) -> str:
    """The controller runs without an engine; returns the base image of builds, where the Jobs' pods find it.

    The file that comes next, if there is one, has an engine again (`order.py`).
    """
    acts.delete_driver(scenario)
    # The proving ground has no pod network, and its guests are no nodes to build on.
    environment = {
        "DRIVER_BUILDER_JOB_HOST_NETWORK": "true",
        "DRIVER_BUILDER_MAX_BUILDS": "2",
        "DRIVER_BUILDER_JOB_NODE_SELECTOR": f"kubernetes.io/hostname={scenario.ground.host_node_name}",
    }
    container = {"name": NAME, "env": [{"name": name, "value": value} for name, value in environment.items()]}
    ground_patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    for patch in (ground_patch, yaml.safe_load(PATCH.read_text())):
        scenario.cluster.client.patch(acts.DEPLOYMENT, patch, content_type="application/strategic-merge-patch+json")
    acts.wait_for("the controller's pod has no engine", lambda: acts.engines(scenario) == [False])
    ground = scenario.ground
    return product_images.push_base_image(ground.engine.client(), ground.registry.host, base_image=ground.base_image)


def jobs(scenario: Scenario) -> list[Json]:
    """Return the Jobs that build."""
    return list(scenario.cluster.client.list(JOBS.path(namespace=NAMESPACE), label_selector=BUILD_LABEL).items)


def pods_made(scenario: Scenario) -> Counter[str]:
    """How many pods each Job has ever been given, by what the cluster's own controller says."""
    events = scenario.cluster.client.list(EVENTS.path(namespace=NAMESPACE)).items
    made = [item for item in events if item["involvedObject"]["kind"] == "Job" and item["reason"] == "SuccessfulCreate"]
    counts: Counter[str] = Counter()
    for item in made:
        counts[item["involvedObject"]["name"]] += item["count"]
    return counts


def keys(scenario: Scenario) -> set[str]:
    """The names that the Jobs of all current targets have."""
    return {job_name(target["buildKey"]) for target in scenario.cluster.targets(DRIVER).values()}


def test_jobs_build_what_the_nodes_run_also_when_the_controller_is_killed(scenario: Scenario, base_image: str) -> None:
    """One Job with one pod for each kernel, whichever controller follows it; the driver is proven, and no Job is left.

    SIGKILL comes while a Job builds: the next controller follows what is there, and starts what is not.
    """
    scenario.apply_driver(
        driver_spec={"image": f"{scenario.ground.registry.host}/drivers/edu-jobs", "build": {"baseImage": base_image}}
    )
    acts.wait_for("a Job builds", lambda: any(job.get("status", {}).get("active") for job in jobs(scenario)))
    acts.kill_controller(scenario)
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    for guest in scenario.guests.values():
        assert "edudrv" in guest.run("cat /proc/modules")[1]
    made = pods_made(scenario)
    assert {made[name] for name in keys(scenario)} == {1}
    assert len(keys(scenario)) == len({guest.kernel.release for guest in scenario.guests.values()})
    acts.wait_for("no Job is left", lambda: not jobs(scenario))
