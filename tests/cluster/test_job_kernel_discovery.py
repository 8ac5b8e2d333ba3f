"""A repository asked from a Job: a real kubelet runs the base image, with driver-builder's own account and rights."""

import threading
import time

import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.job.job_manifest import BUILD_LABEL
from driver_builder.model.repositories import Repository
from driver_builder.prebuild.docker_kernel_discovery import DockerKernelDiscovery
from driver_builder.prebuild.job_kernel_discovery import DiscoveryPod, JobKernelDiscovery
from kube_api.client import Client
from kube_api.resources import JOBS, PODS
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import admin, as_service_account, install
from tools import product_images

NAMESPACE = "driverwright"


@pytest.fixture(scope="module")
def asking(ground: Testbed) -> JobKernelDiscovery:
    """What the controller asks with, as it is deployed."""
    install(admin(ground))
    client = as_service_account(ground, NAMESPACE, "driver-builder")
    return JobKernelDiscovery(client, NAMESPACE, DiscoveryPod(host_network=True))


@pytest.fixture(scope="module")
def repository(ground: Testbed) -> Repository:
    """The base image from the registry, where a node has it from that does not share the engine's images."""
    with docker_engine(ground.engine.socket) as api:
        image = product_images.push_base_image(api, ground.registry.host, base_image=ground.base_image)
    return Repository("debian", image, "amd64")


def left(root: Client) -> list[str]:
    """Name what there is of discoveries in the cluster."""
    return [
        item["metadata"]["name"]
        for resource in (JOBS, PODS)
        for item in root.list(resource.path(namespace=NAMESPACE), label_selector=BUILD_LABEL).items
        if "look-up" in item["metadata"]["labels"][BUILD_LABEL]
    ]


def test_a_job_finds_what_an_engine_finds(ground: Testbed, asking: JobKernelDiscovery, repository: Repository) -> None:
    """The same kernels, twice, and nothing is left of either Job."""
    by_job = asking.discover(repository, cancelled=threading.Event())
    with docker_engine(ground.engine.socket) as api:
        assert by_job == DockerKernelDiscovery(api).discover(repository, cancelled=threading.Event())
    assert any(release.endswith("-cloud-amd64") for release in by_job)
    assert asking.discover(repository, cancelled=threading.Event()) == by_job
    assert_all_is_gone(ground)


def assert_all_is_gone(ground: Testbed) -> None:
    """Nothing of any discovery stays: the garbage collector takes the pods of deleted Jobs."""
    end = time.monotonic() + 600
    while left(admin(ground)):
        assert time.monotonic() < end, left(admin(ground))
        time.sleep(0.5)


def test_a_kernel_discovery_that_is_cancelled_leaves_nothing(
    ground: Testbed, asking: JobKernelDiscovery, repository: Repository
) -> None:
    """As when the controller is stopped in the middle of one."""
    cancelled, root = threading.Event(), admin(ground)

    def cancel_when_begun() -> None:
        while not left(root):
            time.sleep(0.1)
        cancelled.set()

    threading.Thread(target=cancel_when_begun, daemon=True).start()
    with pytest.raises(BuildFailed) as caught:
        asking.discover(repository, cancelled=cancelled)
    assert caught.value.reason is Reason.CANCELLED
    assert_all_is_gone(ground)
