"""The demo on the user's own cluster: the scenario as far as its nodes allow, then everything is removed."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from docker.errors import DockerException
from rich.console import Console

from demo import removal, reporter
from demo.cluster import NAMESPACE, Cluster, ScenarioError
from demo.own_cluster import OwnClusterScenario
from demo.own_nodes import OwnNode, Surroundings
from demo.own_settings import OwnSettings, existing_file
from demo.stage import EDU_LABEL
from kube_api.client import Client
from kube_api.errors import KubeApiError
from testbed import for_terminal
from tools.product_images import ImageError

_ADD_EDU = (
    "Any QEMU machine can have one: add `-device edu` to the command line of a node's machine and start it again."
)
_FORESEEN = (ScenarioError, ImageError, KubeApiError, DockerException)


def run(settings: OwnSettings, console: Console) -> int:
    """Run the scenario; 0 when it succeeded as far as the cluster allows, 1 with the failed step otherwise."""
    began = time.monotonic()
    progress = reporter.NamedSteps(for_terminal())
    console.rule("driverwright: the right driver on every kernel")
    try:
        scenario = OwnClusterScenario(settings, progress)
        _show_surroundings(scenario.look_around(), console)
        scenario.make_room()
    except _FORESEEN as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        return 1
    except KeyboardInterrupt:
        return 130
    code = 1
    try:
        _run(scenario, console)
        code = 0
    except _FORESEEN as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        _show_evidence(scenario, console)
    except KeyboardInterrupt:
        code = 130
    finally:
        is_clean = _leave(scenario, console)
    if code == 0 and is_clean:
        reporter.success(console, time.monotonic() - began)
    return code if is_clean else code or 1


def _run(scenario: OwnClusterScenario, console: Console) -> None:
    scenario.build_product()
    scenario.deploy_programs()
    _show_labels(scenario.wait_for_labels(), console)
    if scenario.nodes():
        _run_with_driver(scenario, console)
    else:
        _say(console, f"No node has the edu device ({EDU_LABEL}), so there is no driver to build. {_ADD_EDU}")
        _run_without_driver(scenario, console)


def _run_with_driver(scenario: OwnClusterScenario, console: Console) -> None:
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    _say(console, f"  workload: {scenario.run_workload()}")
    scenario.force_rebuild()
    console.print(reporter.drivers(scenario.table()))
    if not scenario.settings.keep:
        scenario.remove_driver()


def _run_without_driver(scenario: OwnClusterScenario, console: Console) -> None:
    """Apply the driver all the same: that nothing is to be done for it is what driver-builder should say."""
    scenario.apply_driver()
    scenario.wait_until_observed()
    for command in ("status", "plan"):
        _say(console, f"$ driver-builder {command}", style="bold")
        _say(console, scenario.driver_builder(command))
    console.print("The demo ends here.", style="bold")


def _show_surroundings(found: Surroundings, console: Console) -> None:
    _say(console, f"  API server {found.server}, engine {found.engine}, registry {found.registry}")
    rows = ((node.name, node.state, node.kernel.release, node.os, node.platform, node.runtime) for node in found.nodes)
    console.print(reporter.table("nodes", ("node", "state", "kernel", "OS", "platform", "runtime"), rows))


def _show_labels(found: Sequence[OwnNode], console: Console) -> None:
    rows = ((node.name, node.kernel.release, node.os, str(node.worker_labels)) for node in found)
    console.print(reporter.table("what nfd-worker made of the nodes", ("node", "kernel", "OS", "labels"), rows))


def _show_evidence(scenario: OwnClusterScenario, console: Console) -> None:
    for part in scenario.evidence():
        _say(console, part)
    keeping = "" if scenario.settings.keep else "Leave everything in place with DEMO_KEEP=1. "
    _say(console, f"{keeping}Where to look:")
    for words in (
        f"-n {NAMESPACE} get pods,drivercontainers -o wide",
        f"-n {NAMESPACE} get events --sort-by=.lastTimestamp",
        f"-n {NAMESPACE} logs deployment/driver-builder",
        f"-n {NAMESPACE} logs daemonset/nfd-worker",
    ):
        _say(console, f"  {scenario.settings.kubectl(words)}")


def _leave(scenario: OwnClusterScenario, console: Console) -> bool:
    remedy = scenario.settings.removal_command
    if scenario.settings.keep:
        _say(console, f"kept; remove it with: {remedy}")
        return True
    try:
        scenario.remove()
    except _FORESEEN as error:
        _say(console, f"not everything was removed: {error}\ntry again with: {remedy}")
        return False
    return True


def remove(kubeconfig: Path, console: Console) -> int:
    """Take away what an earlier demo left."""
    progress = for_terminal()
    try:
        removal.remove(Cluster(Client.from_environment(str(kubeconfig))), progress)
    except _FORESEEN as error:
        _say(console, f"not everything was removed: {error}", style="bold red")
        return 1
    return 0


def kubeconfig(environment: Mapping[str, str]) -> Path:
    """Find the cluster that ``remove`` is about.

    Raises:
        SettingsError: when it is not said.
    """
    return existing_file("DEMO_KUBECONFIG", environment.get("DEMO_KUBECONFIG", ""))


def _say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: neither wrapped, as it may be a command to copy, nor read as markup."""
    console.print(text, style=style, markup=False, soft_wrap=True)
