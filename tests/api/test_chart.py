"""Helm 4 takes over an installation that kubectl made, as docs/install.md says, upgrades it and uninstalls it.

No program runs: a node is played, and the driver's DaemonSet is one that a controller would have made. The API server
is this file's own, because definitions and namespace go.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest

from demo.deploy import ENGINE_PATCH
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
)
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import admin, create_quietly, path_of
from tests.support.real_parts.helm_release import RELEASE, Release
from tests.support.yaml_files import read_documents
from tools.manifests import CHART, render

pytestmark = pytest.mark.long
"""It has a server of its own, which costs more processor time than its tests."""

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
NAMESPACE = "driverwright"
DRIVER = "edu-of-the-chart"
NODE = "silent-node"
ENGINE: Json = {"driverBuilder": {"builder": "docker"}}
RULES = CONFIG_MAPS.path(namespace=NAMESPACE, name="nfd-worker-rules")
DEPLOYMENT = DEPLOYMENTS.path(namespace=NAMESPACE, name="driver-builder")
OBJECTS = [item for name, text in render().items() if name.endswith(".yaml") for item in read_documents(text)]
"""What the release has."""
STAYS = [
    NAMESPACES.path(name=NAMESPACE),
    *(CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{path.stem}.{group}") for path, group in (
        (ROOT / "deploy/crds/drivercontainers.yaml", "driverwright.io"),
        (ROOT / "deploy/crds/nodefeaturerules.yaml", "nfd.k8s-sigs.io"),
        (ROOT / "deploy/crds/nodefeatures.yaml", "nfd.k8s-sigs.io"),
    )),
    DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER),
    DAEMON_SETS.path(namespace=NAMESPACE, name=DRIVER),
]  # fmt: skip
"""What it has not."""
FOREIGN = {
    CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{kind}.nfd.k8s-sigs.io") for kind in ("nodefeaturerules", "nodefeatures")
}
"""Definitions that are Node Feature Discovery's."""


class Cluster:
    """A cluster with the release: before, and by Helm."""

    def __init__(self, ground: Testbed) -> None:
        self.client: Client = admin(ground)
        self.release = Release(ground.kubeconfig)
        self.helm = self.release.helm
        self._ground = ground

    def kubectl(self, *words: str, given: str = "") -> None:
        """Run kubectl in the repository's root."""
        program = self._ground.binaries.path("kubectl")
        if not program.exists():
            pytest.skip(f"there is no {program}")
        command = [str(program), "--kubeconfig", str(self._ground.kubeconfig), *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, input=given, timeout=300)
        assert done.returncode == 0, done.stderr

    def states(self, *paths: str) -> dict[str, tuple[str, Any]]:
        """Return uid and generation of objects, of those that are there."""
        found = {}
        for path in paths or [*STAYS, *map(path_of, OBJECTS)]:
            try:
                metadata = self.client.get(path)["metadata"]
            except NotFound:
                continue
            found[path] = metadata["uid"], metadata.get("generation")
        return found

    def pods(self) -> dict[str, str]:
        """Return the pods of DaemonSets by name, with their uid."""
        items = self.client.list(PODS.path(namespace=NAMESPACE)).items
        owned = [item["metadata"] for item in items if item["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"]
        return {metadata["name"]: metadata["uid"] for metadata in owned}

    def template(self) -> Json:
        """Return the pod template of the controller."""
        template: Json = self.client.get(DEPLOYMENT)["spec"]["template"]
        return template


@pytest.fixture(scope="module")
def cluster(own_control_plane: Testbed) -> Iterator[Cluster]:
    """Install by kubectl, with a driver on a node."""
    made = Cluster(own_control_plane)
    made.kubectl("apply", "--validate=false", "-k", "deploy")
    client = made.client
    client.patch(RULES, {"data": {"rules.yaml": "written by driver-builder"}})
    create_quietly(client, NODES.path(), {"metadata": {"name": NODE, "labels": factories.node_labels()}})
    driver = factories.driver_object(finalizer=False, spec_changes={"image": "127.0.0.1:1/x/y"})
    drivers = DRIVER_CONTAINERS.path(namespace=NAMESPACE)
    create_quietly(client, drivers, {**driver, "metadata": {"name": DRIVER, "namespace": NAMESPACE}})
    create_quietly(client, DAEMON_SETS.path(namespace=NAMESPACE), driver_pods(client.get(STAYS[-2])["metadata"]["uid"]))
    wait_for("pods of the worker and of the driver", lambda: len(made.pods()) == 2)
    yield made
    made.release.close()


def driver_pods(owner: str) -> Json:
    """Write a DaemonSet as a controller makes it for a driver."""
    labels = {"app.kubernetes.io/name": DRIVER}
    reference = {"apiVersion": DRIVER_CONTAINERS.api_version, "kind": "DriverContainer", "name": DRIVER, "uid": owner}
    pod = {"containers": [{"name": "driver", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DRIVER, "labels": labels, "ownerReferences": [reference]},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def has_engine(template: Json) -> bool:
    """Tell whether a controller builds with a node's engine, in each respect; fails where it is half of one."""
    spec = template["spec"]
    variables = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
    parts = {
        "node": "driverwright.io/builder" in spec.get("nodeSelector", {}),
        "volume": "engine" in {volume["name"] for volume in spec["volumes"]},
        "mount": "engine" in {mount["name"] for mount in spec["containers"][0]["volumeMounts"]},
        "address": "DOCKER_HOST" in variables,
        "flag": variables["DRIVER_BUILDER_BUILDER"] == "docker",
        "user": spec["securityContext"]["runAsUser"] == 0,
    }
    assert len(set(parts.values())) == 1, parts
    return bool(parts["node"])


def test_the_patch_makes_a_controller_with_an_engine(cluster: Cluster) -> None:
    """By kubectl, as docs/operations.md says; and the manifests of before, which had one, are replaced whole."""
    before = cluster.template()
    patch = ("patch", "deployment", "driver-builder", "-n", NAMESPACE, "--patch-file", str(ENGINE_PATCH))
    assert not has_engine(before)
    cluster.kubectl(*patch)
    assert has_engine(cluster.template())
    (old,) = read_documents(render(ENGINE)["driver-builder/deployment.yaml"])
    cluster.kubectl("delete", "deployment", "driver-builder", "-n", NAMESPACE)
    cluster.kubectl("apply", "-f", "-", given=json.dumps(old))
    assert has_engine(cluster.template())
    cluster.kubectl("apply", "--validate=false", "-k", "deploy")
    assert cluster.template() == before


@pytest.fixture(scope="module")
def taken_over(cluster: Cluster) -> tuple[Cluster, dict[str, Any], dict[str, str], Json]:
    """Hand it over; returns what there was before as well."""
    before = cluster.states(), cluster.pods(), cluster.template()
    with pytest.raises(helm.HelmReleaseError, match="cannot be imported into the current release"):
        cluster.release.install(CHART)
    cluster.release.install(CHART, take_ownership=True, server_side_apply=False)
    return cluster, *before


def test_nothing_moves_when_the_chart_takes_over(
    taken_over: tuple[Cluster, dict[str, Any], dict[str, str], Json],
) -> None:
    """Every object is the same one, no pod was replaced, and what driver-builder wrote stays."""
    cluster, states, pods, template = taken_over
    after = cluster.states()
    assert {path: uid for path, (uid, _) in after.items()} == {path: uid for path, (uid, _) in states.items()}
    # Every change of a Deployment's annotations is a generation.
    assert {path for path in after if after[path] != states[path]} == {DEPLOYMENT}
    assert cluster.template() == template
    assert cluster.pods() == pods
    assert cluster.client.get(RULES)["data"] == {"rules.yaml": "written by driver-builder"}


def test_an_upgrade_changes_what_the_value_is_about_and_a_rollback_takes_it_back(
    taken_over: tuple[Cluster, dict[str, Any], dict[str, str], Json],
) -> None:
    """The controller's Deployment: no worker, no driver and no definition changes."""
    cluster, _, pods, template = taken_over
    before = cluster.states()
    cluster.helm.upgrade(CHART, RELEASE, ENGINE)
    assert has_engine(cluster.template())
    cluster.helm.rollback(RELEASE)
    assert cluster.template() == template
    after = cluster.states()
    assert {path for path in after if after[path] != before[path]} == {DEPLOYMENT}
    assert cluster.pods() == pods


def test_uninstalling_the_release_leaves_definitions_and_drivers(
    taken_over: tuple[Cluster, dict[str, Any], dict[str, str], Json],
) -> None:
    """Namespace, definitions, DriverContainer and the driver's pods stay as they are; nothing else does."""
    cluster, states, pods, _ = taken_over
    cluster.release.uninstall()
    assert cluster.states() == {path: states[path] for path in STAYS}
    assert {name: uid for name, uid in cluster.pods().items() if name.startswith(DRIVER)} == {
        name: uid for name, uid in pods.items() if name.startswith(DRIVER)
    }
    left = cluster.client.list(SECRETS.path(namespace=NAMESPACE)).items
    assert not [item for item in left if item["type"].startswith("helm.sh/release")]


def test_the_commands_of_the_page_leave_nothing(
    taken_over: tuple[Cluster, dict[str, Any], dict[str, str], Json],
) -> None:
    """Drivers, worker, programs, what is left, in this order, after an installation by kubectl.

    The node does not respond: nobody says that the pod which is bound to it has ended.
    """
    cluster = taken_over[0]
    cluster.kubectl("apply", "--validate=false", "-k", "deploy")
    spec = {"nodeName": NODE, "containers": [{"name": "driver", "image": "x"}]}
    cluster.client.create(PODS.path(namespace=NAMESPACE), {"metadata": {"name": "of-a-silent-node"}, "spec": spec})
    section = (ROOT / "docs/install.md").read_text().partition("## Uninstalling")[2].partition("## What was run")[0]
    commands = re.findall(r"kubectl (delete [^`\n#]+[^`\n# ])", section)
    # This API server knows no policies; the last command is the one to avoid.
    assert commands.pop() == "delete -k deploy"
    commands.remove("delete --ignore-not-found -f deploy/admission")
    assert len(commands) == 7
    for command in commands:
        cluster.kubectl(*shlex.split(command))
    assert cluster.states().keys() == FOREIGN


def test_the_chart_installs_what_it_renders_and_leaves_a_definition_of_others_alone(cluster: Cluster) -> None:
    """As the page says, into a namespace that is there; Node Feature Discovery's definition is as it was."""
    cluster.kubectl("apply", "-f", "deploy/namespace.yaml")
    cluster.kubectl("apply", "--validate=false", "-f", "deploy/crds/drivercontainers.yaml")
    before = cluster.states(*FOREIGN)
    for kind in ("nodefeaturerules", "nodefeatures"):
        with pytest.raises(AssertionError, match="AlreadyExists"):
            cluster.kubectl("create", "-f", f"deploy/crds/{kind}.yaml")
    # Alone, this test finds what kubectl has installed.
    cluster.release.install(CHART, take_ownership=True)
    assert cluster.states().keys() >= set(map(path_of, OBJECTS))
    assert cluster.states(*FOREIGN) == before
    cluster.release.uninstall()
