"""The demo on this machine: a testbed is started, the scenario runs there, and the testbed is removed."""

import time

from rich.console import Console

from demo import reporter
from demo.cluster import ScenarioError
from demo.scenario import Scenario
from kube_api.errors import KubeApiError
from testbed import Testbed, TestbedError, for_terminal
from tools.product_images import ImageError


def run(console: Console, *, keep: bool) -> int:
    """Run the scenario; 0 when it succeeded, 1 with the failed step's name and its logs otherwise."""
    began = time.monotonic()
    progress = reporter.NamedSteps(for_terminal())
    console.rule("driverwright: the right driver on every kernel")
    try:
        ground = Testbed.up(progress=progress, host_node=True)
    except TestbedError as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        return 1
    try:
        _run(Scenario(ground, progress), console, keep=keep)
    except (ScenarioError, ImageError, TestbedError, KubeApiError) as error:
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


def _run(scenario: Scenario, console: Console, *, keep: bool) -> None:
    scenario.build_product()
    scenario.boot_nodes()
    scenario.deploy_programs()
    scenario.wait_for_labels()
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    console.print(f"  workload: {scenario.run_workload()}")
    scenario.reboot_into_third_kernel()
    console.print(f"  workload: {scenario.run_workload('edu-factorial-again')}")
    scenario.force_rebuild()
    console.print(reporter.drivers(scenario.table()))
    if not keep:
        scenario.remove_driver()
