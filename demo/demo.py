"""The demo on this machine: a proving ground comes up, the story is told there, and the ground goes again."""

import time

from rich.console import Console

from demo import reporter
from demo.cluster import StoryError
from demo.scenario import Scenario
from kube_api.errors import KubeApiError
from testbed import Testbed, TestbedError, for_terminal
from tools.product_images import ImageError


def tell(console: Console, *, keep: bool) -> int:
    """Tell the story; 0 when it came true, 1 with the failed step's name and its logs otherwise."""
    began = time.monotonic()
    progress = reporter.NamedSteps(for_terminal())
    console.rule("driverwright: the right driver on every kernel")
    try:
        ground = Testbed.up(progress=progress, host_node=True)
    except TestbedError as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        return 1
    try:
        _tell(Scenario(ground, progress), console, keep=keep)
    except (StoryError, ImageError, TestbedError, KubeApiError) as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        console.print(f"logs: {ground.logs}")
        ground.down(keep_logs=True)
        return 1
    except KeyboardInterrupt:
        ground.down()
        return 130
    if keep:
        console.print(f"kept: export KUBECONFIG={ground.kubeconfig}")
        console.print("end it with: python -m testbed down")
    else:
        with progress.step("Clean end"):
            ground.down()
    reporter.success(console, time.monotonic() - began)
    return 0


def _tell(story: Scenario, console: Console, *, keep: bool) -> None:
    story.build_product()
    story.boot_nodes()
    story.deploy_programs()
    story.wait_for_labels()
    story.apply_driver()
    story.wait_for_builds()
    story.wait_for_ready()
    console.print(f"  workload: {story.run_workload()}")
    story.reboot_into_third_kernel()
    console.print(f"  workload: {story.run_workload('edu-factorial-again')}")
    story.force_rebuild()
    console.print(reporter.drivers(story.table()))
    if not keep:
        story.remove_driver()
