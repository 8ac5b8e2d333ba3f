"""driver-builder as ``deploy/`` has it: no container engine, Kubernetes Jobs build, and toolchains are kept.

Before that an engine has built, and kept none. Jobs find a base image in the testbed's registry alone, which
DriverContainers name: so both nodes have Debian 12.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from demo import deploy
from demo.cluster import NAMESPACE, Json
from demo.scenario import CONTROLLER, DRIVER, READY_LABEL, Scenario
from driver_builder.builds.job.job_manifest import BUILD_LABEL, job_name
from driver_builder.registry.registry import RegistryClient
from kube_api import names
from kube_api.resources import DEPLOYMENTS, EVENTS, JOBS, LEASES, PODS
from tests.support.loopback import LOOPBACK
from tests.support.real_parts import acts
from tests.support.real_parts.history import History
from tools import product_images

pytestmark = pytest.mark.long

NAME = "driver-builder"
REPOSITORY = "drivers/edu-jobs"
TOOLCHAINS = "DRIVER_BUILDER_TOOLCHAINS"
RENEWALS = 12
"""Of the Lease, every two seconds: in this time the scenario's controller reconciles twice at least."""


def installed(scenario: Scenario) -> dict[str, Any]:
    """Return what an upgrade must not change: the driver's pods, and keys and images of its targets."""
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in scenario.cluster.driver_pods(DRIVER)}
    targets = scenario.cluster.targets(DRIVER)
    return {**pods, **{kernel: (item["buildKey"], item["imageDigest"]) for kernel, item in targets.items()}}


@pytest.fixture(scope="module")
def on_debian_12(scenario: Scenario) -> Iterator[None]:
    """Let guest-b be a node with Debian 12, too, on the kernel that guest-a does not run."""
    theirs, ours = scenario.guests["guest-b"].kernel, scenario.guests["guest-a"].kernel
    (other,) = (it for it in scenario.kernels if it.codename == ours.codename and it.release != ours.release)
    acts.replace_guest(scenario, "guest-b", other)
    yield
    acts.replace_guest(scenario, "guest-b", theirs)


@pytest.fixture(scope="module")
def by_engine(scenario: Scenario, on_debian_12: None) -> dict[str, Any]:  # noqa: ARG001 - before it
    """An engine builds the driver, and then the controller is the one of ``deploy/``; returns what was there before.

    The file that comes next, if there is one, has an engine again (`order.py`).
    """
    acts.delete_driver(scenario)
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    before = installed(scenario)
    overlay = scenario.overlay()
    # The testbed has no pod network, and its guests are no nodes to build on.
    environment = {
        "DRIVER_BUILDER_JOB_HOST_NETWORK": "true",
        "DRIVER_BUILDER_MAX_BUILDS": "2",
        "DRIVER_BUILDER_JOB_NODE_SELECTOR": f"kubernetes.io/hostname={scenario.ground.host_node_name}",
    }
    # Whether toolchains are kept is left to the manifests.
    own = {name: value for name, value in overlay.environment[NAME].items() if name != TOOLCHAINS}
    settings = {**overlay.environment, NAME: {**own, **environment}}
    jobs = deploy.manifests(dataclasses.replace(overlay, engine_socket=None, environment=settings))
    [deployment] = (item for item in jobs if item["kind"] == DEPLOYMENTS.kind)
    # Its lists as they are: what other tests' settings left in them has other owners.
    scenario.cluster.client.patch(acts.DEPLOYMENT, deployment)
    acts.wait_for("the controller's pod has no engine", lambda: acts.engines(scenario) == [False])
    return before


@pytest.fixture(scope="module")
def base_image(scenario: Scenario, by_engine: dict[str, Any]) -> str:
    """Return the base image of builds, where the Jobs' pods find it; the driver that the engine has built goes."""
    assert by_engine
    acts.delete_driver(scenario)
    ground = scenario.ground
    return product_images.push_base_image(ground.engine.client(), ground.registry.host, base_image=ground.base_image)


def test_a_move_from_an_engine_to_jobs_changes_no_driver(scenario: Scenario, by_engine: dict[str, Any]) -> None:
    """The new controller sees that everything is there: no Job, the same pods, keys and images."""
    path, seen = LEASES.path(namespace=NAMESPACE, name=NAME), set[str]()

    def has_reconciled() -> bool:
        lease = scenario.cluster.client.get(path)["spec"]
        if lease["holderIdentity"] in {pod["metadata"]["name"] for pod in scenario.cluster.pods(CONTROLLER)}:
            seen.add(lease["renewTime"])
        return len(seen) >= RENEWALS

    acts.wait_for("the new controller has the Lease and renews it", has_reconciled)
    scenario.wait_for_ready()
    assert installed(scenario) == by_engine
    assert not jobs(scenario)


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


def apply(scenario: Scenario, base_image: str, **fields: str) -> None:
    """Apply a driver that Jobs build."""
    image = f"{scenario.ground.registry.host}/{REPOSITORY}"
    scenario.apply_driver(driver_spec={"image": image, "build": {"baseImage": base_image}, **fields})


def test_jobs_build_what_the_nodes_run_also_when_the_controller_is_killed(scenario: Scenario, base_image: str) -> None:
    """One Job with one pod for each kernel, whichever controller follows it; the driver is proven, and no Job is left.

    SIGKILL comes while a Job builds: the next controller follows what is there, and starts what is not.
    """
    apply(scenario, base_image)
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


def toolchains(scenario: Scenario) -> list[str]:
    """The tags of the toolchains in the registry."""
    registry = RegistryClient(scenario.ground.registry.host, plain_http=True, reach=LOOPBACK)
    return [tag for tag in registry.tags(REPOSITORY) if tag.startswith("toolchain-")]


def logs(scenario: Scenario) -> list[str]:
    """Return what each target's build has printed, by what the controllers have said."""
    lines = acts.controller_log(scenario).splitlines()
    build_keys = [target["buildKey"] for target in scenario.cluster.targets(DRIVER).values()]
    return ["\n".join(line for line in lines if f"build {key}: " in line) for key in build_keys]


def test_a_new_version_is_built_from_the_toolchains_that_were_pushed(scenario: Scenario, base_image: str) -> None:
    """One toolchain for each kernel; no package manager runs; each node's pod is replaced once, and not before."""
    apply(scenario, base_image)
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    old, kernels = acts.pod_uids(scenario), {guest.kernel.release for guest in scenario.guests.values()}
    first = logs(scenario)
    assert all("apt-get" in log and "building from toolchain" not in log for log in first), first
    driver = f"{names.GROUP}/driver-container={DRIVER},!{names.GROUP}/pull,!{names.GROUP}/proof"
    pods = PODS.path(namespace=NAMESPACE)
    with History(
        scenario.cluster.client, pods, lambda pod: pod["metadata"]["uid"], label_selector=driver
    ) as pods_there_were:
        acts.wait_for("each kernel has a toolchain", lambda: len(toolchains(scenario)) == len(kernels))
        acts.wait_for("no Job is left", lambda: not jobs(scenario))
        assert acts.pod_uids(scenario) == old
        apply(scenario, base_image, version="1.0.1")
        acts.wait_for("the new version is on all nodes", lambda: is_everywhere(scenario, "1.0.1"))
        new = acts.pod_uids(scenario)
    assert old.keys() == new.keys() == set(scenario.guests)
    assert pods_there_were.faces == {*old.values(), *new.values()}
    for log in logs(scenario):
        assert "building from toolchain " in log
        assert not any(words in log for words in ("apt-get", "is not used: ")), log
    made = pods_made(scenario)
    assert {made[name] for name in keys(scenario)} == {1}
    assert len(toolchains(scenario)) == len(kernels)


def is_everywhere(scenario: Scenario, version: str) -> bool:
    """Tell whether every node is labelled with this version, and the wave is over."""
    status = scenario.cluster.driver(DRIVER).get("status") or {}
    labels = (scenario.cluster.labels(guest.name).get(READY_LABEL) for guest in scenario.guests.values())
    return "rollout" not in status and all(label == version for label in labels)
