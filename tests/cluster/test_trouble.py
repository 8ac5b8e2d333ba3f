"""What goes wrong has its own reason in status and an Event, builds nothing wrongly, and recovers when fixed.

A registry, a killed controller, headers, a source, and a module for another kernel, which is refused three times over:
before the push, before insmod, and by the kernel. The tests build on each other, in the order they are written in: the
driver is installed once.
"""

import base64
import tarfile
from contextlib import ExitStack

import pytest

from demo import deploy
from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EDU_LABEL, EXAMPLE, READY_LABEL, SOURCE, Scenario
from driver_builder.model.image_state import Absent, ImageState, Present
from kube_api import names
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES, SECRETS
from tests.support.real_parts import acts

pytestmark = [pytest.mark.chain, pytest.mark.long]

PASSWORD = "the right one"
SECRET = "registry-password"
REPOSITORY = "drivers/edu-trouble"
PREBUILT_MAKEFILE = "# Builds nothing: the module lies here ready-made.\nobj-m :=\n"
LOST, LOST_KERNEL = "node-on-a-lost-kernel", "6.1.0-9999-cloud-amd64"


def label_lost_node(scenario: Scenario, kernel: str) -> None:
    """Make the third node one that runs a kernel."""
    labels = {key: value for key, value in scenario.cluster.labels("guest-b").items() if "cpu" not in key}
    labels |= {names.KERNEL_VERSION_LABEL: names.label_value(kernel), "kubernetes.io/hostname": LOST}
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": LOST, "labels": labels}}
    scenario.cluster.client.apply(NODES.path(name=LOST), node, field_manager="test")


def test_a_registry_that_is_off_and_then_refuses_the_password(scenario: Scenario) -> None:
    """Neither unreachable nor unauthorised counts as absent: each has its reason; nothing is built before both end."""
    registry, kernel = scenario.ground.registry, scenario.guests["guest-b"].kernel.release
    registry.set_auth("builder", PASSWORD)
    write_secret(scenario, "the wrong one")
    registry.stop()
    settings = {
        # Where nothing is yet.
        "image": f"{registry.host}/{REPOSITORY}",
        "registry": {"plainHttp": True, "secretRef": {"name": SECRET}},
        "imagePullSecrets": [{"name": SECRET}],
    }
    try:
        scenario.apply_driver(driver_spec=settings)
        target = acts.wait_for_reason(scenario, kernel, "RegistryUnreachable")
        assert target["state"] == "Blocked"
    finally:
        registry.start()
    target = acts.wait_for_reason(scenario, kernel, "RegistryUnauthorized")
    assert "the wrong one" not in target["message"]
    assert acts.started_builds(scenario, REPOSITORY) == []
    acts.wait_for_events(scenario, "RegistryUnreachable", "RegistryUnauthorized")


def test_killed_between_build_and_push_and_between_push_and_roll_out(scenario: Scenario) -> None:
    """The password is right now: the driver is built, and two controllers are killed meanwhile.

    The image of the first kernel is built and verified, that of the other one pushed and no node told when SIGKILL
    comes. The next controller builds and pushes what was not pushed, rolls out what was, and builds that not again.

    The registry is frozen (SIGSTOP) when the engine has begun a build, so that the controller stands before its push
    until the test has done what it came for. Not sooner: a build asks first whether its image exists. For the push the
    controller has no right to write but to its Lease: without that it would end, and a push may take longer.
    """
    write_secret(scenario, PASSWORD)

    def builds() -> list[tuple[str, str]]:
        return acts.started_builds(scenario, REPOSITORY)

    def state(build: tuple[str, str]) -> type[ImageState]:
        return type(acts.inspect(scenario, build[1], REPOSITORY))

    def at_work() -> list[tuple[str, str]]:
        return acts.builds_at_work(scenario, REPOSITORY)

    acts.wait_for("the engine works at a build", at_work, every=0.2)
    with acts.stopped(scenario, "registry"):
        first, *_ = at_work()
        acts.wait_for("it is verified", lambda: f"build {first[0]}: verified" in acts.controller_log(scenario))
        acts.kill_controller(scenario)
    assert state(first) is Absent

    def others() -> list[tuple[str, str]]:
        return [build for build in at_work() if build != first]

    acts.wait_for("the engine works at the other kernel's build", others, every=0.2)
    with ExitStack() as no_registry, ExitStack() as no_rights:
        no_registry.enter_context(acts.stopped(scenario, "registry"))
        (second,) = others()
        acts.wait_for("it is verified", lambda: f"build {second[0]}: verified" in acts.controller_log(scenario))
        no_rights.enter_context(acts.without_writes(scenario))
        no_registry.close()
        acts.wait_for("it is pushed", lambda: state(second) is Present)
        acts.kill_controller(scenario)
        pushed = acts.inspect(scenario, second[1], REPOSITORY)
        assert isinstance(pushed, Present)
        assert pushed.digest not in str(scenario.cluster.daemon_sets(DRIVER)), "no node was told"
    # For the next test: its build need not wait until the nodes are ready.
    label_lost_node(scenario, LOST_KERNEL)
    for guest in scenario.guests.values():
        scenario.wait_for_image(guest.kernel.release, acts.SILENT)
        scenario.wait_for_ready_label(guest, acts.SILENT)
    acts.wait_for_events(scenario, "TargetReady")
    assert state(first) is Present
    assert builds().count(second) == 1, "it was pushed: nobody builds it again"
    assert builds().count(first) == 2, "once before the kill and once after it"
    acts.wait_for(
        "both kernels are Ready",
        lambda: (
            {scenario.cluster.targets(DRIVER)[guest.kernel.release]["state"] for guest in scenario.guests.values()}
            == {"Ready"}
        ),
    )
    assert PASSWORD not in acts.controller_log(scenario)
    scenario.ground.registry.set_auth(None)


def write_secret(scenario: Scenario, password: str) -> None:
    """Write the pull secret that the DriverContainer names."""
    config = acts.docker_config(scenario.ground.registry.host, "builder", password)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": config},
    }
    path = SECRETS.path(namespace=NAMESPACE, name=SECRET)
    scenario.cluster.client.apply(path, secret, field_manager=deploy.FIELD_MANAGER)


def test_headers_that_do_not_exist(scenario: Scenario) -> None:
    """A kernel without headers fails alone and says which package is missing; the other nodes have become ready.

    The third node runs one that no archive has headers for.
    """
    target = acts.wait_for_reason(scenario, LOST_KERNEL, "HeadersMissing")
    assert f"linux-headers-{LOST_KERNEL}" in target["message"]
    assert target["state"] == "Failed"
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(scenario, "HeadersMissing")
    for guest in scenario.guests.values():
        assert READY_LABEL in scenario.cluster.labels(guest.name)
    label_lost_node(scenario, scenario.guests["guest-b"].kernel.release)
    acts.wait_for("the lost kernel is gone", lambda: LOST_KERNEL not in scenario.cluster.targets(DRIVER))
    assert EDU_LABEL in scenario.cluster.labels(LOST)
    scenario.cluster.client.delete(NODES.path(name=LOST))
    scenario.wait_for_ready()


def test_a_driver_that_does_not_compile(scenario: Scenario) -> None:
    """The first error is named with file and line, nodes keep what works, and a mended source is taken up at once."""
    kernel = scenario.guests["guest-b"].kernel.release
    good = scenario.cluster.targets(DRIVER)[kernel]["imageDigest"]
    code = (EXAMPLE / "src/edudrv.c").read_text()
    scenario.apply_source(replace={"edudrv.c": f"{code}\nint broken(void) {{ return no_such_thing; }}\n"})
    target = acts.wait_for_reason(scenario, kernel, "CompileError")
    assert f"edudrv.c:{len(code.splitlines()) + 2}" in target["message"]
    assert "no_such_thing" in target["message"]
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(scenario, "CompileError")
    assert "edudrv" in scenario.guests["guest-b"].run("cat /proc/modules")[1]
    scenario.apply_source()
    scenario.wait_for_ready()
    assert scenario.cluster.targets(DRIVER)[kernel]["imageDigest"] == good


def kernels(scenario: Scenario) -> tuple[str, str]:
    """The kernels that guest-a and guest-b run."""
    return scenario.guests["guest-a"].kernel.release, scenario.guests["guest-b"].kernel.release


def module_for(scenario: Scenario, kernel: str) -> bytes:
    """Read edudrv.ko for a kernel from the image that was pushed for it."""
    api = scenario.ground.engine.client()
    image = acts.image_of(scenario, kernel, REPOSITORY)
    api.pull(image)
    container = api.create_container(image, ["none"])["Id"]
    try:
        stream, _ = api.get_archive(container, f"/lib/modules/{kernel}/updates/edudrv.ko")
        with tarfile.open(fileobj=acts.spooled(stream)) as tar:
            member = tar.extractfile("edudrv.ko")
            assert member is not None
            return member.read()
    finally:
        api.remove_container(container)


def test_the_loader_refuses_before_insmod(scenario: Scenario) -> None:
    """The image for another kernel says so, loads nothing and does not fail: labels will move it away."""
    wrong, _ = kernels(scenario)
    guest = scenario.guests["guest-b"]
    state = acts.run_pod(
        scenario, "wrong-loader", guest, acts.image_of(scenario, wrong, REPOSITORY), [*acts.LOADER, "load"]
    )
    assert state["exitCode"] == 0
    verdict = acts.verdict(state)
    assert verdict["result"] == "WrongKernel"
    assert (verdict["kernel"], verdict["builtFor"]) == (guest.kernel.release, wrong)


def test_the_kernel_itself_refuses(scenario: Scenario) -> None:
    """Past all our checks, insmod of the other kernel's module ends with the kernel's own refusal."""
    wrong, _ = kernels(scenario)
    guest = scenario.guests["guest-b"]
    path = f"/lib/modules/{wrong}/updates/edudrv.ko"
    command = [
        *acts.SHELL,
        "-c",
        f"insmod {path} && exit 0; dmesg | grep edudrv | tail -2; exit 9",
    ]
    state = acts.run_pod(scenario, "wrong-insmod", guest, acts.image_of(scenario, wrong, REPOSITORY), command)
    assert state["exitCode"] == 9
    said = state["message"]
    assert "disagrees about version of symbol" in said or "section size must match" in said or "Unknown symbol" in said


def test_verification_refuses_before_the_push(scenario: Scenario) -> None:
    """A source that brings a ready-made module for another kernel ends with a reason, and nothing is pushed."""
    wrong, right = kernels(scenario)
    prebuilt = module_for(scenario, wrong)
    source = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edu-prebuilt", "namespace": NAMESPACE},
        "data": {"Makefile": PREBUILT_MAKEFILE},
        "binaryData": {"edudrv.ko": base64.b64encode(prebuilt).decode()},
    }
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-prebuilt")
    scenario.cluster.client.apply(path, source, field_manager=deploy.FIELD_MANAGER)
    driver = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": "edu-prebuilt"}}}})
    target = acts.wait_for_reason(scenario, right, "WrongVermagic")
    assert "edudrv" in target["message"]
    assert wrong in target["message"]
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(scenario, "WrongVermagic")
    # The nodes keep what works meanwhile, and the driver recovers with its source.
    scenario.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": SOURCE}}}})
    scenario.wait_for_ready()


def test_a_driver_that_does_not_load_halts_its_wave(scenario: Scenario) -> None:
    """It compiles for both kernels: the first node gets it, fails and returns to what works, which the other keeps."""
    pods = acts.pod_uids(scenario)
    modules = {name: acts.live_module(guest) for name, guest in scenario.guests.items()}
    code, begin = (EXAMPLE / "src/edudrv.c").read_text(), "static int __init edu_init(void)\n{\n"
    assert code.count(begin) == 1
    scenario.apply_source(
        replace={"edudrv.c": code.replace(begin, f"{begin}\tif (THIS_MODULE)\n\t\treturn -EINVAL;\n")}
    )
    targets = [acts.wait_for_reason(scenario, it.kernel.release, "RolloutHalted") for it in scenario.guests.values()]
    assert {target["state"] for target in targets} == {"Blocked"}
    wave = scenario.cluster.driver(DRIVER)["status"]["rollout"]
    assert (wave["phase"], wave["failedNodes"], wave["maxUnavailable"]) == ("Halted", 1, 1)
    (failed,) = wave["returned"]
    (kept,) = scenario.guests.keys() - {failed}
    assert f"it failed on {failed}" in wave["message"]
    acts.wait_until(scenario, f"{failed} works again", lambda: READY_LABEL in scenario.cluster.labels(failed))
    assert READY_LABEL in scenario.cluster.labels(kept)
    assert acts.live_module(scenario.guests[failed]).split()[1] == modules[failed].split()[1]
    assert acts.live_module(scenario.guests[kept]) == modules[kept]
    acts.wait_for_events(scenario, "RolloutHalted")
    assert scenario.cluster.driver(DRIVER)["status"]["rollout"]["phase"] == "Halted"
    scenario.apply_source()
    scenario.wait_for_ready()
    acts.wait_until(scenario, "the wave has ended", lambda: "rollout" not in scenario.cluster.driver(DRIVER)["status"])
    acts.wait_until(scenario, "no label of the wave is left", lambda: not wave_labels(scenario))
    assert acts.pod_uids(scenario)[kept] == pods[kept]
    assert acts.live_module(scenario.guests[kept]) == modules[kept]


def wave_labels(scenario: Scenario) -> list[str]:
    """Name the nodes with the label of a wave."""
    return [name for name in scenario.guests if any(key.endswith(".wave") for key in scenario.cluster.labels(name))]
