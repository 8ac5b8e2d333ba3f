"""The demo on this machine: a proving ground comes up, the story is told there, and the ground goes again."""

import time

from rich.console import Console

from kube_api.errors import KubeApiError
from tests.proving_ground import ProvingGround, ProvingGroundError, for_terminal
from tests.story import telling
from tests.story.cluster import StoryError
from tests.story.product_images import ImageError
from tests.story.story import Story


def tell(console: Console, *, keep: bool) -> int:
    """Tell the story; 0 when it came true, 1 with the failed step's name and its logs otherwise."""
    began = time.monotonic()
    progress = telling.NamedSteps(for_terminal())
    console.rule("driverwright: the right driver on every kernel")
    try:
        ground = ProvingGround.up(progress=progress, host_node=True)
    except ProvingGroundError as error:
        telling.failure(console, progress.failed, error, time.monotonic() - began)
        return 1
    try:
        _tell(Story(ground, progress), console, keep=keep)
    except (StoryError, ImageError, ProvingGroundError, KubeApiError) as error:
        telling.failure(console, progress.failed, error, time.monotonic() - began)
        console.print(f"logs: {ground.logs}")
        ground.down(keep_logs=True)
        return 1
    except KeyboardInterrupt:
        ground.down()
        return 130
    if keep:
        console.print(f"kept: export KUBECONFIG={ground.kubeconfig}")
        console.print("end it with: python -m tests.proving_ground down")
    else:
        with progress.step("Clean end"):
            ground.down()
    telling.success(console, time.monotonic() - began)
    return 0


def _tell(story: Story, console: Console, *, keep: bool) -> None:
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
    console.print(telling.drivers(story.table()))
    if not keep:
        story.remove_driver()
