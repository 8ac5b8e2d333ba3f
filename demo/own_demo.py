"""The demo on a cluster of the user's: the story as far as its nodes allow, and everything taken away again."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from docker.errors import DockerException
from rich.console import Console

from demo import removal, reporter
from demo.cluster import NAMESPACE, Cluster, StoryError
from demo.own_cluster import OwnClusterStory
from demo.own_nodes import OwnNode, Surroundings
from demo.own_settings import OwnSettings, existing_file
from demo.stage import EDU_LABEL
from kube_api.client import Client
from kube_api.errors import KubeApiError
from testbed import for_terminal
from tools.product_images import ImageError

_GO_ON = "The demo continues without builds; to build, run this and start the demo again:"
_ADD_EDU = (
    "Any QEMU machine can have one: add `-device edu` to the command line of a node's machine and start it again."
)
_FORESEEN = (StoryError, ImageError, KubeApiError, DockerException)


def tell(settings: OwnSettings, console: Console) -> int:
    """Tell the story; 0 when it came true as far as the cluster allows, 1 with the failed step otherwise."""
    began = time.monotonic()
    progress = reporter.NamedSteps(for_terminal())
    console.rule("driverwright: the right driver on every kernel")
    try:
        story = OwnClusterStory(settings, progress)
        _show_surroundings(story.look_around(), console)
        story.make_room()
    except _FORESEEN as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        return 1
    except KeyboardInterrupt:
        return 130
    code = 1
    try:
        _tell(story, console)
        code = 0
    except _FORESEEN as error:
        reporter.failure(console, progress.failed, error, time.monotonic() - began)
        _show_evidence(story, console)
    except KeyboardInterrupt:
        code = 130
    finally:
        is_clean = _leave(story, console)
    if code == 0 and is_clean:
        reporter.success(console, time.monotonic() - began)
    return code if is_clean else code or 1


def _tell(story: OwnClusterStory, console: Console) -> None:
    story.build_product()
    story.deploy_programs()
    _show_labels(story.wait_for_labels(), console)
    has_builder, has_device = bool(story.builder_nodes()), bool(story.nodes())
    if not has_builder:
        _say(console, f"No node is labelled for driver-builder, which needs one with a Docker Engine. {_GO_ON}")
        _say(console, f"  {story.how_to_get_a_builder()}")
    if not has_device:
        _say(console, f"No node has the edu device ({EDU_LABEL}), so there is no driver to build. {_ADD_EDU}")
    if has_builder and has_device:
        _tell_of_the_driver(story, console)
    else:
        _tell_without_driver(story, console, has_builder=has_builder)


def _tell_of_the_driver(story: OwnClusterStory, console: Console) -> None:
    story.apply_driver()
    story.wait_for_builds()
    story.wait_for_ready()
    _say(console, f"  workload: {story.run_workload()}")
    story.force_rebuild()
    console.print(reporter.drivers(story.table()))
    if not story.settings.keep:
        story.remove_driver()


def _tell_without_driver(story: OwnClusterStory, console: Console, *, has_builder: bool) -> None:
    """Apply the driver all the same: that nothing is to be done for it is what driver-builder should say."""
    story.apply_driver()
    if has_builder:
        story.wait_until_observed()
    for command in ("status", "plan"):
        _say(console, f"$ driver-builder {command}", style="bold")
        _say(console, story.driver_builder(command))
    console.print("The demo ends here.", style="bold")


def _show_surroundings(found: Surroundings, console: Console) -> None:
    _say(console, f"  API server {found.server}, engine {found.engine}, registry {found.registry}")
    rows = ((node.name, node.state, node.kernel.release, node.os, node.platform, node.runtime) for node in found.nodes)
    console.print(reporter.table("nodes", ("node", "state", "kernel", "OS", "platform", "runtime"), rows))


def _show_labels(found: Sequence[OwnNode], console: Console) -> None:
    rows = ((node.name, node.kernel.release, node.os, str(node.worker_labels)) for node in found)
    console.print(reporter.table("what nfd-worker made of the nodes", ("node", "kernel", "OS", "labels"), rows))


def _show_evidence(story: OwnClusterStory, console: Console) -> None:
    for part in story.evidence():
        _say(console, part)
    keeping = "" if story.settings.keep else "Leave everything in place with DEMO_KEEP=1. "
    _say(console, f"{keeping}Where to look:")
    for words in (
        f"-n {NAMESPACE} get pods,drivercontainers -o wide",
        f"-n {NAMESPACE} get events --sort-by=.lastTimestamp",
        f"-n {NAMESPACE} logs deployment/driver-builder",
        f"-n {NAMESPACE} logs daemonset/nfd-worker",
    ):
        _say(console, f"  {story.settings.kubectl(words)}")


def _leave(story: OwnClusterStory, console: Console) -> bool:
    remedy = story.settings.removal_command
    if story.settings.keep:
        _say(console, f"kept; remove it with: {remedy}")
        return True
    try:
        story.remove()
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
