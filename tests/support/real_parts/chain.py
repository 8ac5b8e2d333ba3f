"""The chain that follows a driver on guests: its spec, the agent's image, labels, and what is where meanwhile."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import yaml

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, EXAMPLE, Scenario
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.stage_labels import Stage, stage_label
from testbed.guest.guest import Guest
from tests.support.real_parts import acts
from tools import product_images

KEY = DriverKey(f"{NAMESPACE}/{DRIVER}")
RESOURCE = "driverwright.io/edu"
EVERY = list(Stage)
_WATCHED, _SEEN = "/run/watched-chain", "/run/seen-of-chain"
# Builtins of the shell alone, but for the pause. The agent's socket is there while the agent is.
_LOOK = (
    "was=start; while [ -e {watched} ]; do now=none; state=; plugin=no; "
    "read -r state </sys/module/{module}/initstate && read -r now </sys/module/{module}/{sign}; "
    '[ "$state" = live ] || now=none; '
    "for file in /var/lib/kubelet/device-plugins/driverwright*; do [ -S $file ] && plugin=yes; done; "
    '[ "$now $plugin" = "$was" ] || {{ was="$now $plugin"; echo "$was"; }}; '
    "sleep 0.1; done >{seen} 2>/dev/null &"
)


@contextmanager
def controller_with_agent(scenario: Scenario) -> Iterator[None]:
    """Let the controller have the image of the device agent, which the nodes pull."""
    ground = scenario.ground
    with closing(ground.engine.client(timeout=600)) as engine:
        images = product_images.build_all(
            engine, ground.registry.host, base_image=ground.base_image, say=lambda _: None, keep=True,
            names=("device-agent",),
        )  # fmt: skip
    with acts.controller_with(scenario, DRIVER_BUILDER_DEVICE_AGENT_IMAGE=images["device-agent"]):
        yield


def chain(scenario: Scenario) -> dict[str, Any]:
    """Return validation and stages of the example, with the image of this cluster."""
    spec = yaml.safe_load((EXAMPLE / "stages.yaml").read_text())["spec"]
    image = {"image": scenario.images["edu-workload"]}
    stages = {**spec["stages"], "pluginValidation": {**spec["stages"]["pluginValidation"], **image}}
    return {"validation": {**spec["validation"], **image}, "stages": stages}


def stages_of(scenario: Scenario, node: str) -> list[Stage]:
    """Return the stages whose labels a node has."""
    labels = scenario.cluster.labels(node)
    return [stage for stage in EVERY if stage_label(KEY, stage) in labels]


def until_every_stage(scenario: Scenario, node: str, *, leaves: bool = False) -> list[list[Stage]]:
    """Wait until a node has all labels, after it had not where it ``leaves``; returns what it had meanwhile."""
    seen: list[list[Stage]] = []

    def check() -> bool | None:
        now = stages_of(scenario, node)
        if seen[-1:] != [now]:
            seen.append(now)
        return (now == EVERY and (len(seen) > 1 or not leaves)) or None

    def why() -> str:
        pods = scenario.describe_pods(f"driverwright.io/driver-container={DRIVER}")
        return f"{seen[-1:]}; {scenario.cluster.condition(DRIVER, 'Stages')}; {pods}"

    scenario.cluster.wait(f"{node} has every stage", check, timeout=3 * acts.SETTLE_SECONDS, seen=why, every=0.1)
    return seen


@contextmanager
def chain_on(guest: Guest, *, module: str = "edudrv", sign: str = "srcversion") -> Iterator[list[tuple[str, str]]]:
    """Watch which module a guest has, and whether its plugin runs; what was seen is there at the end.

    ``sign``: the file of the module in /sys that tells one from the next.
    """
    seen: list[tuple[str, str]] = []
    guest.check(f"touch {_WATCHED}; {_LOOK.format(watched=_WATCHED, seen=_SEEN, module=module, sign=sign)}")
    try:
        yield seen
    finally:
        for line in guest.check(f"rm -f {_WATCHED}; cat {_SEEN}").splitlines():
            module, _, plugin = line.partition(" ")
            seen.append((module, plugin))
