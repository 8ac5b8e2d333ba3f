"""The chain on real kernels: driver, our device agent as its plugin, the plugin's validation, and workloads by it.

The tests build on each other, in the order they are written in.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import takewhile
from typing import Any

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, EXAMPLE, READY_LABEL, Scenario
from driver_builder.objects.stage_labels import Stage, stage_label
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS
from testbed.guest.guest import Guest
from tests.support.real_parts import acts
from tests.support.real_parts.chain import (
    EVERY,
    KEY,
    RESOURCE,
    chain,
    chain_on,
    controller_with_agent,
    until_every_stage,
)
from tests.support.real_parts.device_agent import Place

pytestmark = [pytest.mark.long, pytest.mark.chain]

PREFIX = stage_label(KEY, Stage.VALID).removesuffix(Stage.VALID)
PLUGIN = f"{DRIVER}-plug"
BEGINNINGS = [EVERY[:count] for count in range(len(EVERY) + 1)]
BEGIN = "static int __init edu_init(void)\n{\n"
ANSWER = "*factorial = readl(edu->registers + EDU_FACTORIAL)"


@pytest.fixture(scope="module", autouse=True)
def _agent(scenario: Scenario) -> Iterator[None]:
    """Let the controller have the image of the device agent, which the nodes pull."""
    with controller_with_agent(scenario):
        yield
        acts.delete_driver(scenario)


def test_the_labels_of_the_stages_come_in_their_order(scenario: Scenario) -> None:
    """On each node: proven, free for stages, with its plugin, with a plugin that computes."""
    scenario.apply_driver(driver_spec=chain(scenario))
    seen = {name: until_every_stage(scenario, name) for name in scenario.guests}
    first = next(iter(seen.values()))
    assert all(stages in BEGINNINGS for stages in first)
    assert first == sorted(first, key=len)
    assert all(EVERY[:count] in first for count in (2, 3, 4))
    acts.wait_until(scenario, "the stages are all there", lambda: _condition(scenario) == "True")


def test_an_unprivileged_pod_that_requests_the_device_computes_on_it(scenario: Scenario) -> None:
    """It needs neither a label nor a capability: 10! by the edu device."""
    for node in scenario.guests:
        place = Place(scenario.ground, node, RESOURCE)
        place.wait_for("1", "1")
        # The kernel makes the node root's alone; root without capabilities and privileges is enough.
        place.start_pod(f"requests-{node}", scenario.images["edu-workload"], ["/bin/factorial", "10"], user=0)
        assert "10! = 3628800" in place.log_with(f"requests-{node}", "10! = ")
        place.delete_pod(f"requests-{node}")


def test_the_plugin_leaves_before_the_driver_is_replaced_and_all_comes_back(scenario: Scenario) -> None:
    """No plugin runs while a node has no module, and the labels come in their order again."""
    guest = next(iter(scenario.guests.values()))
    with chain_on(guest) as seen:
        code = (EXAMPLE / "src/edudrv.c").read_text()
        assert code.count(BEGIN) == 1
        scenario.apply_source(replace={"edudrv.c": code.replace(BEGIN, f'{BEGIN}\tpr_info("edudrv: again\\n");\n')})
        labels = until_every_stage(scenario, guest.name, leaves=True)
        acts.wait_until(scenario, "the wave has ended", lambda: not _status(scenario).get("rollout"))
    for name in scenario.guests:
        until_every_stage(scenario, name)
    acts.wait_until(scenario, "the stages are all there", lambda: _condition(scenario) == "True")
    assert labels[0] == EVERY
    assert Stage.RUN not in labels[1]
    back = list(takewhile(lambda stages: Stage.RUN in stages, reversed(labels)))
    assert all(stages in BEGINNINGS for stages in back)
    (old, *_), (new, *_) = seen[0], seen[-1]
    assert (seen[0], seen[-1]) == ((old, "yes"), (new, "yes"))
    assert old != new
    assert seen.index((old, "no")) < seen.index(("none", "no")) < seen.index((new, "no"))
    assert ("none", "yes") not in seen


def test_a_driver_that_computes_wrongly_is_taken_back_before_another_node_has_it(scenario: Scenario) -> None:
    """It loads and fails its validation: no ready label and no plugin beside it; then its node has what it had."""
    old = {name: _module(guest) for name, guest in scenario.guests.items()}
    ready_beside_it: list[bool] = []

    def is_halted() -> bool:
        for name, guest in scenario.guests.items():
            before, labels, after = _module(guest), scenario.cluster.labels(name), _module(guest)
            if before == after and after not in ("", old[name]):
                ready_beside_it.append(READY_LABEL in labels)
        return {target.get("reason") for target in scenario.cluster.targets(DRIVER).values()} == {"RolloutHalted"}

    with ExitStack() as stack:
        seen = {name: stack.enter_context(chain_on(guest)) for name, guest in scenario.guests.items()}
        code = (EXAMPLE / "src/edudrv.c").read_text()
        assert code.count(ANSWER) == 1
        scenario.apply_source(replace={"edudrv.c": code.replace(ANSWER, f"{ANSWER} + 1")})
        acts.wait_until(scenario, "the wave has halted", is_halted)
        wave = _status(scenario)["rollout"]
        (failed,) = wave["returned"]
        until_every_stage(scenario, failed)
        acts.wait_until(scenario, f"{failed} is ready again", lambda: READY_LABEL in scenario.cluster.labels(failed))
    (kept,) = scenario.guests.keys() - {failed}
    assert (wave["phase"], wave["failedNodes"]) == ("Halted", 1)
    assert f"it failed on {failed}: ValidationFailed: the command failed (1)" in wave["message"]
    assert "factorial: /dev/edu0 is wrong" in wave["message"]
    # The label goes when the new pod has said what it loaded, and does not come while that is validated.
    assert ready_beside_it == sorted(ready_beside_it, reverse=True)
    assert not ready_beside_it[-1]
    (wrong,) = {module for module, _ in seen[failed]} - {"none", old[failed]}
    assert (wrong, "no") in seen[failed]
    assert (wrong, "yes") not in seen[failed]
    assert seen[failed][-1] == (old[failed], "yes")
    assert seen[kept] == [(old[kept], "yes")]
    acts.wait_for_events(scenario, "RolloutHalted")


def test_a_driver_that_is_deleted_leaves_nothing_of_its_stages(scenario: Scenario) -> None:
    """No label or annotation of a stage, no DaemonSet and no ConfigMap of the plugin; the module is gone."""
    scenario.remove_driver()
    for name in scenario.guests:
        metadata = scenario.cluster.node(name)["metadata"]
        assert [key for part in ("labels", "annotations") for key in metadata[part] if key.startswith(PREFIX)] == []
    for resource in (DAEMON_SETS, CONFIG_MAPS):
        path = resource.path(namespace=NAMESPACE, name=PLUGIN)
        acts.wait_until(scenario, f"{path} is gone", lambda path=path: _is_gone(scenario, path))  # type: ignore[misc]


def _module(guest: Guest) -> str:
    """Return the identity of the module that is live on a guest, empty while there is none."""
    return guest.run("cat /sys/module/edudrv/srcversion 2>/dev/null")[1].strip()


def _status(scenario: Scenario) -> dict[str, Any]:
    found: dict[str, Any] = scenario.cluster.driver(DRIVER).get("status") or {}
    return found


def _condition(scenario: Scenario) -> str:
    status: str = scenario.cluster.condition(DRIVER, "Stages").get("status", "")
    return status


def _is_gone(scenario: Scenario, path: str) -> bool:
    try:
        scenario.cluster.client.get(path)
    except NotFound:
        return True
    return False
