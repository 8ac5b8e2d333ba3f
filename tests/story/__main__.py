"""``make demo``: the whole story on this machine, for a person who watches."""

import os
import sys
import time

from rich.console import Console
from rich.table import Table

from tests.proving_ground import ProvingGround, ProvingGroundError, for_terminal
from tests.story.cluster import StoryError
from tests.story.product_images import ImageError
from tests.story.story import NodeRow, Story


def main() -> int:
    """Tell the story; 0 when it came true, 1 with the failed step's name and its logs otherwise."""
    console = Console(highlight=False)
    began = time.monotonic()
    keep = os.environ.get("DEMO_KEEP") == "1"
    progress = for_terminal()
    console.rule("driverwright: the right driver on every kernel")
    try:
        ground = ProvingGround.up(progress=progress, host_node=True)
    except ProvingGroundError as error:
        console.print(f"[bold red]demo failed[/]: {error}")
        return 1
    try:
        story = Story(ground, progress)
        _tell(story, console)
    except (StoryError, ImageError, ProvingGroundError) as error:
        console.print(f"[bold red]demo failed[/] after {time.monotonic() - began:.0f} s: {error}")
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
    console.print(f"[bold green]demo done[/] in {time.monotonic() - began:.0f} s")
    return 0


def _tell(story: Story, console: Console) -> None:
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
    console.print(_as_table(story.table()))
    if os.environ.get("DEMO_KEEP") != "1":
        story.remove_driver()


def _as_table(rows: list[NodeRow]) -> Table:
    table = Table(title="nodes and their drivers")
    for heading in ("node", "kernel", "image", "digest", "module", "device", "ready"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            row.node, row.kernel, row.image.rpartition("/")[2], row.digest[:19], row.module, row.device, row.ready
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
