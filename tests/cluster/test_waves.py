"""Waves on real kernels: a canary that is watched, the way back, a node that joins, windows, and admins' labels.

The tests build on each other, in the order they are written in.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, EXAMPLE, READY_LABEL, REPOSITORY, Scenario
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES, PODS
from kube_api.timestamps import timestamp
from testbed.guest.guest import Guest
from tests.cluster.test_loop import assert_proven, wait_for_another_pod
from tests.support.real_parts import acts, module_watch

pytestmark = [pytest.mark.long, pytest.mark.chain]

CANARY, OTHER = "guest-a", "guest-b"
PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
OLD_VERSION, NEW_VERSION = "1.0.0", "1.1.0"
OPENS_AT = (datetime.now(UTC) + timedelta(days=180)).replace(day=1, hour=3, minute=0, second=0, microsecond=0)
FAR_AWAY = {"cron": f"0 3 1 {OPENS_AT.month} *", "duration": "1h"}
ALWAYS = {"cron": "* * * * *", "duration": "1h"}
IMAGES = (
    f"ctr -n k8s.io images ls | awk '/{REPOSITORY.replace('/', '.')}@/ {{of[$3]}} {{name[NR] = $1; is[NR] = $3}} "
    "END {for (i in name) if (is[i] in of) print name[i]}'"
)
"""Prints what a guest's store has of the driver: containerd's names for its images, and those of the kubelet."""
BEGIN = "static int __init edu_init(void)\n{\n"


@pytest.fixture(scope="module", autouse=True)
def first(scenario: Scenario) -> Iterator[dict[str, str]]:
    """The driver at work on both nodes, with the modules that they have; then another version, which soaks."""
    scenario.apply_driver(driver_spec={"rollout": {"canary": 1, "soak": "12h"}})
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    modules = versions(scenario)
    apply_version(scenario, "another version")
    acts.wait_until(
        scenario,
        "the canary soaks, and the image of the other kernel is there",
        lambda: (wave(scenario).get("phase"), wave(scenario).get("nodes")) == ("Soaking", len(scenario.guests)),
    )
    yield modules
    acts.delete_driver(scenario)


def test_the_canary_alone_has_the_new_version(scenario: Scenario, first: dict[str, str]) -> None:
    """It is named by a label; the other node keeps pod and module."""
    assert version_on(scenario.guests[CANARY]) != first[CANARY]
    assert version_on(scenario.guests[OTHER]) == first[OTHER]
    assert moved(scenario) == [CANARY]
    assert len(scenario.cluster.daemon_sets(DRIVER)) == 2 * len(scenario.guests)
    assert all(READY_LABEL in scenario.cluster.labels(name) for name in scenario.guests)


def test_a_node_that_reboots_without_a_registry_loads_what_it_had(
    scenario: Scenario, first: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The image of before is in its own store."""
    guest, registry = scenario.guests[OTHER], scenario.ground.registry
    registry.stop()
    try:
        guest.reboot()
        guest.wait_ready(timeout=acts.SETTLE_SECONDS)
        seconds = until_proven(scenario, guest)
    finally:
        registry.start()
    assert version_on(guest) == first[OTHER]
    assert moved(scenario) == [CANARY]
    say(capsys, f"a reboot without a registry: the driver is proven {seconds:.1f} s after {OTHER} is Ready")


def test_a_pod_that_is_deleted_comes_back_as_it_was(scenario: Scenario, first: dict[str, str]) -> None:
    """On the canary with the new version, on the other node with the one of before."""
    new = version_on(scenario.guests[CANARY])
    before = acts.pod_uids(scenario)
    for pod in scenario.cluster.driver_pods(DRIVER):
        scenario.cluster.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))
    for name, uid in before.items():
        wait_for_another_pod(scenario, name, uid)
    assert versions(scenario) == {CANARY: new, OTHER: first[OTHER]}


def test_a_cordoned_node_stays_as_it_is(scenario: Scenario, first: dict[str, str]) -> None:
    """The wave goes on after the soak; the node is counted as left out, and stays cordoned."""
    before = acts.pod_uids(scenario)[OTHER]
    cordon(scenario, yes=True)
    patch_driver(scenario, spec={"rollout": {"canary": None, "soak": None}})
    acts.wait_until(scenario, f"{OTHER} is left out", lambda: wave(scenario).get("leftOutNodes") == 1)
    assert OTHER in wave(scenario)["message"]
    assert acts.pod_uids(scenario)[OTHER] == before
    assert version_on(scenario.guests[OTHER]) == first[OTHER]
    assert scenario.cluster.node(OTHER)["spec"]["unschedulable"] is True


def test_an_undone_wave_takes_the_new_version_back(scenario: Scenario, first: dict[str, str]) -> None:
    """The canary has the module of before again, and stays ready."""
    brought = ",".join(wave(scenario)["targets"].values())
    patch_driver(scenario, metadata={"annotations": {names.UNDO_ROLLOUT_ANNOTATION: brought}})
    acts.wait_until(scenario, f"{CANARY} has moved back", lambda: moved(scenario) == [])
    acts.wait_until(
        scenario,
        f"{CANARY} has the module of before",
        lambda: version_on(scenario.guests[CANARY]) == first[CANARY] and READY_LABEL in scenario.cluster.labels(CANARY),
    )
    assert wave(scenario)["phase"] == "Halted"
    cordon(scenario, yes=False)


def test_a_corrected_version_reaches_both_nodes_and_nothing_of_the_wave_is_left(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node has one version, none, and the other one; no second DaemonSet, label or status of the wave is left."""
    before = versions(scenario)
    with module_watch.watched(*scenario.guests.values()) as seen:
        apply_version(scenario, "corrected")
        wait_for_end(scenario)
    acts.wait_until(scenario, "no label of the wave is left", lambda: moved(scenario) == [])
    for name in scenario.guests:
        assert_proven(scenario, name)
    after = versions(scenario)
    assert {name: seen.versions(name) for name in scenario.guests} == {
        name: [before[name], "", after[name]] for name in scenario.guests
    }
    say(capsys, "a wave: for how many seconds each node has no module, and how many its new pod takes to its proof")
    for name in scenario.guests:
        say(capsys, f"  {name}: {seen.seconds_without(name):5.1f} s {seconds_of_pod(scenario, name):5.0f} s")


def test_a_node_that_joins_gets_the_image_that_exists(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    """It is new to the cluster, and its store has no image of the driver: it pulls what was built for its kernel."""
    guest, before = scenario.guests[OTHER], version_on(scenario.guests[OTHER])
    guest.check(f"ctr -n k8s.io images rm --sync $({IMAGES})")
    assert guest.check(IMAGES) == ""
    leave(scenario, guest)
    guest.boot(guest.kernel)
    guest.wait_ready(timeout=acts.SETTLE_SECONDS)
    seconds = until_proven(scenario, guest)
    assert version_on(guest) == before
    assert guest.check(IMAGES) != ""
    say(capsys, f"a node that joins: the driver is proven {seconds:.1f} s after it is Ready; the image exists")


def test_without_the_label_of_an_admin_no_node_is_next(scenario: Scenario, corrected: dict[str, str]) -> None:
    """The label of the version of before does not count; no window is open either."""
    want(scenario, CANARY, OLD_VERSION)
    rollout = {"order": "nodeLabel", "windows": [FAR_AWAY]}
    patch_driver(scenario, spec={"version": NEW_VERSION, "rollout": rollout})
    apply_version(scenario, "wanted")
    wait_for_words(scenario, "no other node has the label of the new version; 0 of 2 nodes updated")
    assert reasons(scenario) == {"RolloutWaiting"}
    assert versions(scenario) == corrected


def test_a_node_that_is_labelled_waits_for_a_window(scenario: Scenario, corrected: dict[str, str]) -> None:
    """The status says when it opens; no pod and no module changes."""
    pods = acts.pod_uids(scenario)
    want(scenario, OTHER, NEW_VERSION)
    until = timestamp(OPENS_AT.timestamp())
    wait_for_words(scenario, f"no maintenance window is open until {until}; 0 of 2 nodes updated")
    assert reasons(scenario) == {"RolloutWaiting"}
    assert (acts.pod_uids(scenario), versions(scenario)) == (pods, corrected)


def test_an_open_window_lets_the_labelled_node_go_alone(scenario: Scenario, corrected: dict[str, str]) -> None:
    """The node whose name comes first keeps pod and module."""
    pods = acts.pod_uids(scenario)
    patch_driver(scenario, spec={"rollout": {"windows": [ALWAYS]}})
    wait_for_words(scenario, "no other node has the label of the new version; 1 of 2 nodes updated")
    assert scenario.cluster.labels(OTHER)[READY_LABEL] == NEW_VERSION
    assert version_on(scenario.guests[OTHER]) not in {"", corrected[OTHER]}
    assert acts.pod_uids(scenario)[CANARY] == pods[CANARY]
    assert version_on(scenario.guests[CANARY]) == corrected[CANARY]


def test_the_other_node_follows_when_it_is_labelled(scenario: Scenario, corrected: dict[str, str]) -> None:
    """The wave ends with it."""
    want(scenario, CANARY, NEW_VERSION)
    wait_for_end(scenario)
    scenario.wait_for_ready()
    assert {scenario.cluster.labels(name)[READY_LABEL] for name in scenario.guests} == {NEW_VERSION}
    assert version_on(scenario.guests[CANARY]) not in {"", corrected[CANARY]}


@pytest.fixture(scope="module")
def corrected(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Return the modules that both nodes have before the wave that waits for windows and labels."""
    yield versions(scenario)
    for name in scenario.guests:
        want(scenario, name, None)


def want(scenario: Scenario, node: str, version: str | None) -> None:
    """Let a node have a version, as an admin does by a label."""
    labels = {names.wanted_version_label(NAMESPACE, DRIVER): version}
    scenario.cluster.client.patch(NODES.path(name=node), {"metadata": {"labels": labels}})


def wait_for_words(scenario: Scenario, words: str) -> None:
    """Wait until the wave waits, and its message is this."""
    acts.wait_until(
        scenario,
        f"the wave waits: {words}",
        lambda: (wave(scenario).get("phase"), wave(scenario).get("message")) == ("Waiting", words),
    )


def wait_for_end(scenario: Scenario) -> None:
    """Wait until the wave has ended: one DaemonSet for each target is left."""
    acts.wait_until(
        scenario,
        "the wave has ended",
        lambda: not wave(scenario) and len(scenario.cluster.daemon_sets(DRIVER)) == len(scenario.guests),
    )


def reasons(scenario: Scenario) -> set[str]:
    """Return why the targets are as they are."""
    return {target["reason"] for target in scenario.cluster.targets(DRIVER).values()}


def apply_version(scenario: Scenario, words: str) -> None:
    """Change the driver's source: the module says these words when it is loaded."""
    code = (EXAMPLE / "src/edudrv.c").read_text()
    assert code.count(BEGIN) == 1
    said = f'{BEGIN}\tpr_info("edudrv: {words}\\n");\n'
    scenario.apply_source(replace={"edudrv.c": code.replace(BEGIN, said)})


def leave(scenario: Scenario, guest: Guest) -> None:
    """Power a node off, and remove it from the cluster with its pods."""
    guest.power_off()
    client, ground = scenario.cluster.client, scenario.ground
    client.delete(NODES.path(name=guest.name))
    for pod in client.list(PODS.path(namespace=NAMESPACE)).items:
        if pod["spec"].get("nodeName") == guest.name:
            ground.api.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]) + "?gracePeriodSeconds=0")


def until_proven(scenario: Scenario, guest: Guest) -> float:
    """Wait until a node that is Ready has its driver; returns the seconds."""
    began = time.monotonic()
    scenario.cluster.wait(
        f"{guest.name} has its driver",
        lambda: is_proven_on(scenario, guest) or None,
        timeout=acts.SETTLE_SECONDS,
        seen=lambda: scenario.cluster.describe_targets(DRIVER),
    )
    return time.monotonic() - began


def seconds_of_pod(scenario: Scenario, node: str) -> float:
    """Return how long the driver's pod of a node took from its creation until it was Ready."""
    (pod,) = (pod for pod in scenario.cluster.driver_pods(DRIVER) if pod["spec"].get("nodeName") == node)
    (ready,) = (item for item in pod["status"]["conditions"] if item["type"] == "Ready")
    made, proven = (
        datetime.fromisoformat(text) for text in (pod["metadata"]["creationTimestamp"], ready["lastTransitionTime"])
    )
    return (proven - made).total_seconds()


def say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Print words at once, whatever becomes of the test."""
    with capsys.disabled():
        print(f"\n{words}", end="", flush=True)


def versions(scenario: Scenario) -> dict[str, str]:
    """Return the srcversion of the module that is live on each guest."""
    return {name: version_on(guest) for name, guest in scenario.guests.items()}


def wave(scenario: Scenario) -> dict[str, Any]:
    """Return the wave in the driver's status, empty while there is none."""
    found: dict[str, Any] = (scenario.cluster.driver(DRIVER).get("status") or {}).get("rollout") or {}
    return found


def moved(scenario: Scenario) -> list[str]:
    """Name the nodes with the label of a wave."""
    label = names.wave_label(NAMESPACE, DRIVER)
    return [name for name in sorted(scenario.guests) if label in scenario.cluster.labels(name)]


def version_on(guest: Guest) -> str:
    """Return the srcversion of the module that is live on a guest, empty while there is none."""
    return guest.run("cat /sys/module/edudrv/srcversion")[1].strip() if is_loaded(guest) else ""


def is_loaded(guest: Guest) -> bool:
    """Return whether a guest has the module."""
    return guest.run("test -e /sys/module/edudrv/srcversion")[0] == 0


def is_proven_on(scenario: Scenario, guest: Guest) -> bool:
    """Return whether a node has its ready label for the boot that it is in."""
    node = scenario.cluster.node(guest.name)["metadata"]
    place = (node.get("annotations") or {}).get(READY_LABEL, "")
    return READY_LABEL in node["labels"] and place.startswith(guest.boot_id())


def cordon(scenario: Scenario, *, yes: bool) -> None:
    """Cordon the other node, as kubectl does, or undo that."""
    scenario.cluster.client.patch(NODES.path(name=OTHER), {"spec": {"unschedulable": yes or None}})


def patch_driver(scenario: Scenario, **body: Any) -> None:
    """Edit the DriverContainer."""
    scenario.cluster.client.patch(PATH, body)
