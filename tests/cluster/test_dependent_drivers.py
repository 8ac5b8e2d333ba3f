"""Two drivers on real kernels of which one uses a symbol of the other: a wave of the first, and what ends it early.

The tests build on each other, in the order they are written in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EXAMPLE, SOURCE, Scenario
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES
from testbed.guest.guest import Guest
from tests.support.real_parts import acts, module_watch

pytestmark = [pytest.mark.long, pytest.mark.chain]

FIRST = "helper"
FIRST_MODULE, SECOND_MODULE = "dw_helper", "edudrv"
HELPER = (Path(__file__).parents[1] / "data/modules/dw_helper.c").read_text()
INT, LONG = "int dw_helper_double(int value)", "long dw_helper_double(long value)"
BEGIN = "static int __init edu_init(void)\n{\n"
USES = (
    f'int dw_helper_double(int value);\nMODULE_IMPORT_NS(DW_HELPER);\n\n{BEGIN}'
    '\tpr_info("edudrv: doubled %d\\n", dw_helper_double(21));\n'
)  # fmt: skip
HOLDER = "/run/user-of-edu"
"""The file with the process that keeps the device open."""
LABELS = tuple(names.ready_label(NAMESPACE, driver) for driver in (FIRST, DRIVER))


@pytest.fixture(scope="module", autouse=True)
def _drivers(scenario: Scenario) -> Iterator[None]:
    """Both drivers at work on both nodes; the second is applied first, and waits."""
    code = (EXAMPLE / "src/edudrv.c").read_text()
    assert code.count(BEGIN) == 1
    scenario.apply_source(replace={"edudrv.c": code.replace(BEGIN, USES)})
    scenario.apply([driver(scenario, DRIVER, SECOND_MODULE, SOURCE, dependsOn=[{"name": FIRST}])])
    apply_helper(scenario, HELPER)
    scenario.apply([driver(scenario, FIRST, FIRST_MODULE, "helper-source")])
    wait_for_ready(scenario)
    yield
    for name in (DRIVER, FIRST):
        scenario.ground.api.delete(path_of(name))
    scenario.wait_until_driver_is_gone()


def test_the_second_driver_computes_with_the_first(scenario: Scenario) -> None:
    """On each kernel the first module is held by the second, once."""
    for guest in scenario.guests.values():
        assert held_by(guest) == ("1", SECOND_MODULE)
        assert "edudrv: doubled 42" in guest.check("dmesg")


def test_a_wave_of_the_first_lets_the_second_yield_on_one_node_after_the_other(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """The symbol has another CRC: second out, first replaced, second in with what was built for it; then the next."""
    before = {name: version_on(guest, FIRST_MODULE) for name, guest in scenario.guests.items()}
    guests = tuple(scenario.guests.values())
    assert HELPER.count(INT) == 2
    with (
        module_watch.watched(*guests, module=FIRST_MODULE) as first,
        module_watch.watched(*guests, module=SECOND_MODULE) as second,
    ):
        apply_helper(scenario, HELPER.replace(INT, LONG))
        wait_for_wave(scenario, before)
    say(capsys, "a wave of a driver that another one uses: for how many seconds each node has no module")
    for guest in guests:
        (first_away,), (second_away,) = first.away(guest.name), second.away(guest.name)
        say(capsys, f"  {guest.name}: {FIRST_MODULE} {first.seconds_without(guest.name):.1f} s, "
            f"{SECOND_MODULE} {second.seconds_without(guest.name):.1f} s")  # fmt: skip
        assert second_away[0] <= first_away[0] < first_away[1] <= second_away[1]
        assert len(set(first.versions(guest.name))) == 3, "one version, none, and another one"
        assert held_by(guest) == ("1", SECOND_MODULE)
        assert "disagrees about version" not in guest.check("dmesg")
    one, other = sorted(second.away(guest.name)[0] for guest in guests)
    assert one[1] < other[0], "the second node yields once the first one has both again"


def test_a_node_where_the_second_is_in_use_keeps_both_and_the_status_says_so(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wave goes on with the other node; both modules stay as they are, and both labels come back."""
    guest, other = scenario.guests["guest-a"], scenario.guests["guest-b"]
    acts.hold_device(guest, HOLDER)
    before = {name: version_on(item, FIRST_MODULE) for name, item in scenario.guests.items()}
    loads = loads_on(guest)
    apply_helper(scenario, HELPER.replace(INT, LONG) + 'MODULE_INFO(upgraded, "again");\n')
    said = scenario.cluster.wait(
        "the status says who is in use",
        lambda: text if "is in use" in (text := message(scenario)) else None,
        timeout=acts.SETTLE_SECONDS,
    )
    say(capsys, f"a dependent driver in use: {said}")
    assert guest.name in said
    assert f"driver {NAMESPACE}/{DRIVER}, which depends on it, is not unloaded" in said
    # The controller tries to unload it for ten minutes.
    scenario.cluster.wait(
        "the other node is upgraded",
        lambda: (
            (version_on(other, FIRST_MODULE) not in {"", before[other.name]} and has_labels(scenario, other.name))
            or None
        ),
        timeout=3 * acts.SETTLE_SECONDS,
    )
    acts.wait_until(scenario, f"{guest.name} is ready again", lambda: has_labels(scenario, guest.name))
    assert loads_on(guest) == loads
    assert names.yield_label(NAMESPACE, DRIVER) not in scenario.cluster.labels(guest.name)


def test_once_it_is_free_and_the_record_removed_the_node_follows(scenario: Scenario) -> None:
    """As an admin does who does not wait for ten minutes."""
    guest = scenario.guests["guest-a"]
    before = {guest.name: version_on(guest, FIRST_MODULE)}
    guest.check(f"kill $(cat {HOLDER})")
    patch = {"metadata": {"annotations": {names.DRAINING_ANNOTATION: None}}}
    scenario.cluster.client.patch(NODES.path(name=guest.name), patch)
    wait_for_wave(scenario, before)
    for item in scenario.guests.values():
        assert held_by(item) == ("1", SECOND_MODULE)
    acts.wait_until(scenario, "nothing of the wave is left", lambda: not traces_of_a_wave(scenario))


def test_the_first_is_not_removed_while_the_second_names_it(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays, works, and says for whom; it goes with the second one."""
    loads = {name: loads_on(guest) for name, guest in scenario.guests.items()}
    scenario.cluster.client.delete(path_of(FIRST))
    acts.wait_until(scenario, "it says for whom it stays", lambda: "WaitingForDependents" in unloading(scenario))
    say(capsys, f"deleted while another one needs it: {unloading(scenario)}")
    assert f"{NAMESPACE}/{DRIVER}" in unloading(scenario)
    assert {name: loads_on(guest) for name, guest in scenario.guests.items()} == loads
    assert all(has_labels(scenario, name) for name in scenario.guests)
    scenario.cluster.client.delete(path_of(DRIVER))
    scenario.wait_until_driver_is_gone()
    acts.wait_until(scenario, "the first is gone", lambda: scenario.ground.api.get(path_of(FIRST)) is None)
    for guest in scenario.guests.values():
        assert loads_on(guest) == {}
        assert not set(LABELS) & scenario.cluster.labels(guest.name).keys()


def path_of(name: str) -> str:
    """Return where a DriverContainer is."""
    return DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)


def driver(scenario: Scenario, name: str, module: str, source: str, **spec: Any) -> Json:
    """Make the DriverContainer of one module, for all nodes with an edu device."""
    body: Json = yaml.safe_load((EXAMPLE / "driver-container.yaml").read_text())
    body["metadata"]["name"] = name
    body["spec"] |= {
        "image": f"{scenario.ground.registry.host}/drivers/{name}",
        "registry": {"plainHttp": True},
        "source": {"configMap": {"name": source}},
        "module": {"names": [module]},
        **spec,
    }
    return body


def apply_helper(scenario: Scenario, code: str) -> None:
    """Write the source of the first driver."""
    data = {"dw_helper.c": code, "Makefile": "obj-m := dw_helper.o\n"}
    metadata = {"name": "helper-source", "namespace": NAMESPACE}
    scenario.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])


def wait_for_ready(scenario: Scenario) -> None:
    """Wait until both drivers are proven on both nodes."""

    def check() -> bool | None:
        ready = all(scenario.cluster.condition(name, "Ready").get("status") == "True" for name in (FIRST, DRIVER))
        return (ready and all(has_labels(scenario, name) for name in scenario.guests)) or None

    scenario.cluster.wait(
        "both drivers are ready",
        check,
        timeout=3 * acts.SETTLE_SECONDS,
        seen=lambda: "; ".join(f"{name}: {scenario.cluster.describe_targets(name)}" for name in (FIRST, DRIVER)),
    )


def wait_for_wave(scenario: Scenario, before: dict[str, str]) -> None:
    """Wait until nodes have another module than before of the first driver, and no wave is under way."""

    def check() -> bool | None:
        moved = all(version_on(scenario.guests[name], FIRST_MODULE) not in {"", old} for name, old in before.items())
        return (moved and not any(wave(scenario, name) for name in (FIRST, DRIVER))) or None

    scenario.cluster.wait(
        "the wave is over",
        check,
        timeout=3 * acts.SETTLE_SECONDS,
        seen=lambda: f"{message(scenario)}; {scenario.cluster.describe_targets(FIRST)}",
    )
    wait_for_ready(scenario)


def wave(scenario: Scenario, name: str) -> Json:
    """Return the wave in a driver's status, empty while there is none."""
    found: Json = (scenario.cluster.driver(name).get("status") or {}).get("rollout") or {}
    return found


def message(scenario: Scenario) -> str:
    """Return what the status of the first driver says of its wave."""
    return str(wave(scenario, FIRST).get("message", ""))


def unloading(scenario: Scenario) -> str:
    """Return reason and message of the first driver's condition ``Unloading``."""
    found = scenario.cluster.condition(FIRST, "Unloading")
    return f"{found.get('reason', '')}: {found.get('message', '')}"


def has_labels(scenario: Scenario, node: str) -> bool:
    """Return whether both drivers are proven on a node."""
    return set(LABELS) <= scenario.cluster.labels(node).keys()


def version_on(guest: Guest, module: str) -> str:
    """Return the srcversion of a module that is live on a guest, empty while there is none."""
    return guest.run(f"cat /sys/module/{module}/srcversion 2>/dev/null")[1].strip()


def held_by(guest: Guest) -> tuple[str, str]:
    """Return the reference count of the first module, and the modules that hold it."""
    count, *holders = guest.check(f"cd /sys/module/{FIRST_MODULE} && cat refcnt && ls holders").split()
    return count, " ".join(holders)


def traces_of_a_wave(scenario: Scenario) -> list[str]:
    """Name the labels and annotations that nodes have while a driver is replaced."""
    words = {names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION, names.YIELDING_ANNOTATION}
    words |= {label(NAMESPACE, item) for label in (names.wave_label, names.yield_label) for item in (FIRST, DRIVER)}
    metadata = [scenario.cluster.node(name)["metadata"] for name in scenario.guests]
    return [key for item in metadata for kind in ("labels", "annotations") for key in item[kind] if key in words]


def loads_on(guest: Guest) -> dict[str, str]:
    """Tell one load of both modules from the next one: the kernel makes a module's folder when it is loaded."""
    found = guest.run(f"cd /sys/module && stat -c '%n %i' {FIRST_MODULE} {SECOND_MODULE} 2>/dev/null")[1]
    return dict(line.split() for line in found.splitlines())


def say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Print words at once, whatever becomes of the test."""
    with capsys.disabled():
        print(f"\n{words}", end="", flush=True)
