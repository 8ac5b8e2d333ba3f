"""From an empty folder to a driver that is ready, and back to a cluster and nodes without a trace of ours.

The commands are those of README.md, examples/edu-driver/README.md and docs/install.md, read from the pages and run by a
shell, with the images that they build and the accounts that they make. The testbed is this file's own, because
namespace and definitions go.
"""

import re
from functools import partial

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import CONTROLLER, READY_LABEL
from demo.stage import WORKER
from testbed.guest.guest import Guest
from testbed.testbed import Testbed
from tests.support.real_parts import acts, traces
from tests.support.real_parts.admin_shell import blocks, commands, section
from tests.support.real_parts.install_site import EXAMPLE, Site

pytestmark = [pytest.mark.long, pytest.mark.chain]

OLD_SERVER = re.compile(r"^(kubectl apply .*?) +# API servers before 1\.25: add (--\S+)$", re.MULTILINE)
UNINSTALLING = commands(
    section("docs/install.md", "## Uninstalling").partition("`kubectl delete -k deploy` is not that")[0]
)
OF_OTHERS = {f"{kind}.nfd.k8s-sigs.io" for kind in ("nodefeaturerules", "nodefeatures")}
"""Definitions that are Node Feature Discovery's, as the page says, and stay."""
STAYS_ON_NODES = {
    f"+/{path}" for path in ("etc/kubernetes", "etc/kubernetes/node-feature-discovery", "run/driverwright")
}
"""Empty folders, as the page says."""


@pytest.fixture(scope="module")
def site(own_ground: Testbed, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    """Make the images as README says, and boot two nodes that have them."""
    shown = request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled

    def say(text: str) -> None:
        with shown():
            print(text, flush=True)

    made = Site(own_ground, tmp_path_factory.mktemp("empty"), say)
    made.push_images_of_others()
    made.admin.run(readme()[0])
    with shown():
        made.boot()
    return made


@pytest.fixture(scope="module")
def before(site: Site) -> traces.Record:
    """Record cluster and nodes before anything of ours is there."""
    return traces.record(site.client, site.guests)


def readme() -> tuple[str, str]:
    """Return what README says of an installation: what makes the images, and what is for the cluster."""
    (block,) = blocks(section("README.md", "## Install"))
    yours, images, *others = block.splitlines(keepends=True)
    assert yours.startswith("export REGISTRY=registry.example.com/team ")
    assert images.startswith("make images ")
    # This API server is an old one.
    return images, OLD_SERVER.sub(r"\1 \2", "".join(others))


def test_what_readme_says_installs_both_programs(site: Site, before: traces.Record) -> None:
    """By kubectl and kustomize; each pod has the image that was built, and the account that is for it alone."""
    assert not [path for path in before.objects if NAMESPACE in path]
    site.fit_overlay()
    assert "successfully rolled out" in site.admin.run(readme()[1])
    site.admin.run(f"kubectl -n {NAMESPACE} rollout status daemonset/nfd-worker")
    assert_programs(site)


def assert_programs(site: Site) -> None:
    """Look at the pods of both programs."""
    for selector, name, count in ((CONTROLLER, "driver-builder", 1), (WORKER, "nfd-worker", len(site.nodes()))):
        pods = [pod for pod in site.cluster.pods(selector) if "deletionTimestamp" not in pod["metadata"]]
        assert len(pods) == count
        for pod in pods:
            (container,) = pod["spec"]["containers"]
            assert container["image"] == f"{site.registry}/driverwright/{name}:latest"
            assert pod["spec"]["serviceAccountName"] == name
            assert pod["spec"]["securityContext"]["runAsUser"] == 65534


def test_the_example_is_built_in_jobs_loaded_and_used(site: Site) -> None:
    """As its page says, to the last command; the module is live in both kernels."""
    whitelist, registry, driver, workload, again = blocks(section(f"{EXAMPLE}/README.md", "## Use it"))
    site.admin.run(whitelist + registry, at=EXAMPLE)
    site.fit_driver("driver-container.yaml")
    create, watch = driver.strip().rsplit("\n", 1)
    site.admin.run(create, at=EXAMPLE)
    # VERSION, TARGETS, READY: every kernel's image is on its nodes.
    site.admin.watch(watch, lambda line: line.split()[1:4] == ["1.0.0", "2/2", "True"])
    assert_ready(site)
    accounts = {item["spec"]["serviceAccountName"] for item in site.cluster.pods("driverwright.io/build")}
    assert accounts <= {"driver-builder-job"}
    said = site.admin.run(on_the_hosts_network(workload), at=EXAMPLE)
    assert said.splitlines()[-1] == "10! = 3628800"
    site.admin.run(again, at=EXAMPLE)
    site.admin.run("kubectl get drivercontainers -n driverwright")


def on_the_hosts_network(script: str) -> str:
    """Let builds of an engine that has no network of its own reach one."""
    return script.replace("docker build ", "docker build --network host ")


def assert_ready(site: Site) -> None:
    """Look at the labels, and into the nodes' kernels."""
    for guest in site.guests:
        assert site.cluster.labels(guest.name)[READY_LABEL] == "1.0.0"
        assert "edudrv" in guest.run("cat /proc/modules")[1]


def test_what_the_page_says_uninstalls_without_a_trace(site: Site, before: traces.Record) -> None:
    """By kubectl, in the page's order, each command to its end."""
    uninstall(site)
    assert_no_trace(site, before)
    site.admin.run(f"kubectl delete crd {' '.join(sorted(OF_OTHERS))}")


def uninstall(site: Site) -> None:
    """Run the commands of the page, all but those that are for other clusters."""
    for command in UNINSTALLING:
        # There is no release and no NodeFeature object, and the server is older.
        if command.startswith("helm ") or "NODE_FEATURE_NAMESPACES" in command or "1.30 and later" in command:
            continue
        for name in site.nodes() if command.endswith(" NODE") else ["NODE"]:
            site.admin.run(re.sub(r"\bNODE$", name, command))


def assert_no_trace(site: Site, before: traces.Record) -> None:
    """Compare cluster and nodes with what they were; only what the page names is left."""
    after = traces.of_cluster(site.client)
    new = {path for path in after.objects - before.objects if "/v1alpha1.nfd.k8s-sigs.io" not in path}
    assert new == {f"customresourcedefinitions/{name}" for name in OF_OTHERS}
    assert before.objects - after.objects == set()
    assert after.nodes == before.nodes
    for guest in site.guests:
        acts.wait_for(f"{guest.name} has no trace", partial(has_no_trace, guest))


def has_no_trace(guest: Guest) -> bool:
    """Tell whether a node is as it was, and its kubelet has tidied up."""
    return traces.on_node(guest) <= STAYS_ON_NODES
