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
def base_image(story: Scenario) -> str:
    """The controller runs without an engine; gives the base image of builds, where the Jobs' pods find it.

    The file that comes next, if there is one, has an engine again (`order.py`).
    """
    acts.delete_driver(story)
    # The proving ground has no pod network, and its guests are no nodes to build on.
    environment = {
        "DRIVER_BUILDER_JOB_HOST_NETWORK": "true",
        "DRIVER_BUILDER_MAX_BUILDS": "2",
        "DRIVER_BUILDER_JOB_NODE_SELECTOR": f"kubernetes.io/hostname={story.ground.host_node_name}",
    }
    container = {"name": NAME, "env": [{"name": name, "value": value} for name, value in environment.items()]}
    ground_patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    for patch in (ground_patch, yaml.safe_load(PATCH.read_text())):
        story.cluster.client.patch(acts.DEPLOYMENT, patch, content_type="application/strategic-merge-patch+json")
    acts.wait_for("the controller's pod has no engine", lambda: acts.engines(story) == [False])
    ground = story.ground
    return product_images.push_base_image(ground.engine.client(), ground.registry.host, base_image=ground.base_image)


def jobs(story: Scenario) -> list[Json]:
    """Give the Jobs that build."""
    return list(story.cluster.client.list(JOBS.path(namespace=NAMESPACE), label_selector=BUILD_LABEL).items)


def pods_made(story: Scenario) -> Counter[str]:
    """How many pods each Job has ever been given, by what the cluster's own controller says."""
    events = story.cluster.client.list(EVENTS.path(namespace=NAMESPACE)).items
    made = [item for item in events if item["involvedObject"]["kind"] == "Job" and item["reason"] == "SuccessfulCreate"]
    counts: Counter[str] = Counter()
    for item in made:
        counts[item["involvedObject"]["name"]] += item["count"]
    return counts


def keys(story: Scenario) -> set[str]:
    """The names that the Jobs of all current targets have."""
    return {job_name(target["buildKey"]) for target in story.cluster.targets(DRIVER).values()}


def test_jobs_build_what_the_nodes_run_also_when_the_controller_is_killed(story: Scenario, base_image: str) -> None:
    """One Job with one pod for each kernel, whoever follows it; the driver is proven, and no Job is left.

    SIGKILL comes while a Job builds: the next controller follows what is there, and starts what is not.
    """
    story.apply_driver(
        driver_spec={"image": f"{story.ground.registry.host}/drivers/edu-jobs", "build": {"baseImage": base_image}}
    )
    acts.wait_for("a Job builds", lambda: any(job.get("status", {}).get("active") for job in jobs(story)))
    acts.kill_controller(story)
    story.wait_for_builds()
    story.wait_for_ready()
    for guest in story.guests.values():
        assert "edudrv" in guest.run("cat /proc/modules")[1]
    made = pods_made(story)
    assert {made[name] for name in keys(story)} == {1}
    assert len(keys(story)) == len({guest.kernel.release for guest in story.guests.values()})
    acts.wait_for("no Job is left", lambda: not jobs(story))
