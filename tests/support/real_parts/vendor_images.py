"""A driver of vendors' images on two nodes: modules as KMM's kmod images have them, and a program that loads its own.

Our loader loads the former. Tests edit the driver from there; each file of them starts it by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, Scenario
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.images import ImageRef
from driver_builder.tasks.proof_pod import PROOF
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import DRIVER_CONTAINERS
from testbed.guest.guest import Guest
from testbed.testbed import Testbed
from tests.cluster.test_drain import DRAIN
from tests.cluster.test_pod_on_node import build
from tests.support.real_parts import acts
from tests.support.real_parts.chain import chain, controller_with_agent, until_every_stage
from tests.support.real_parts.cluster_setup import documents, path_of
from tests.support.real_parts.images import derive

# As NVIDIA's: it unloads what it finds, loads its own, and unloads it when it is told to end.
_PROGRAM = """
unload() { rmmod edudrv 2>/dev/null; }
trap 'unload; exit 0' TERM
unload
insmod "/opt/lib/modules/$(uname -r)/updates/edudrv.ko" "$@" || exit 1
while :; do sleep 1000 & wait; done
"""
_WITH_PROGRAM = (
    "COPY busybox program /",
    "RUN chmod 0755 /busybox",
    'ENTRYPOINT ["/busybox", "sh", "/program"]',
    'CMD ["use_irq=1"]',
)
_DRAIN_RIGHTS = "driver-builder/drain.yaml"
_PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorsDriver:
    """Which node loads which way, and from what."""

    own: Guest
    """Our loader loads here, from a kmod image."""
    program: Guest
    """The program of an image loads here."""
    built: Mapping[str, ImageRef]
    """By node: what the modules in its images are taken from."""
    mappings: tuple[Json, Json]
    """The kernel mappings of ``own`` and ``program``."""

    @property
    def guests(self) -> tuple[Guest, Guest]:
        """Both nodes."""
        return self.own, self.program


@contextlib.contextmanager
def vendors_driver(scenario: Scenario, folder: Path) -> Iterator[VendorsDriver]:
    """Push an image for each node, and let the controller drain and have the device agent; the driver goes afterwards.

    It is not applied yet.
    """
    rights = tuple(documents(_DRAIN_RIGHTS))
    with controller_with_agent(scenario):
        scenario.apply(rights)
        try:
            yield _push_images(scenario, folder)
        finally:
            acts.delete_driver(scenario)
            for right in rights:
                with contextlib.suppress(NotFound):
                    scenario.cluster.client.delete(path_of(right))


def _push_images(scenario: Scenario, folder: Path) -> VendorsDriver:
    """Push a kmod image for one node, and an image with its own program for the other."""
    own, program = scenario.guests.values()
    built, images = {}, {}
    for guest, commands in ((own, ()), (program, _WITH_PROGRAM)):
        place = folder / guest.name
        place.mkdir()
        built[guest.name], _ = build(scenario.ground, guest.kernel, place)
        images[guest.name] = _push_image(scenario.ground, built[guest.name], guest.name, *commands)
    container = {
        "args": ["use_irq=0"],
        "hostPaths": [{"path": "/run/edu", "propagation": "Bidirectional"}, {"path": "/lib/firmware"}],
        "timeout": "5m",
    }
    mappings = (
        {"literal": own.kernel.release, "image": images[own.name]},
        {
            "literal": program.kernel.release,
            "image": images[program.name],
            "loader": "image",
            "container": container,
        },
    )
    return VendorsDriver(own=own, program=program, built=built, mappings=mappings)


def push_next(scenario: Scenario, vendors: VendorsDriver, guest: Guest) -> str:
    """Push another image with the program for a node, and return its reference."""
    name = f"{guest.name}-next"
    return _push_image(scenario.ground, vendors.built[guest.name], name, *_WITH_PROGRAM, "LABEL next=true")


def _push_image(ground: Testbed, built: ImageRef, name: str, *commands: str) -> str:
    """Make an image with the modules of a built one where kmod images have them, push it, and return its reference."""
    repository = f"{ground.registry.host}/vendor/{name}"
    modules = f"COPY --from={built} /lib/modules/ /opt/lib/modules/"
    files = {"busybox": Path("/bin/busybox").read_bytes(), "program": _PROGRAM.encode()}
    derive(ground, f"{repository}:1", files, modules, *commands)
    with docker_engine(ground.engine.socket) as api:
        for line in api.push(repository, tag="1", auth_config=ground.registry.auth_config, stream=True, decode=True):
            assert "error" not in line, line
    return f"{repository}:1"


def start(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Apply the driver, trust its images, and wait until both nodes are ready and have every stage."""
    apply(scenario, vendors)
    trust(scenario)
    wait_for_every_stage(scenario, vendors)


def apply(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Apply the driver with a drain and all stages; nothing says which modules its images have."""
    spec = {"kernelMappings": list(vendors.mappings), "module": {"names": ["edudrv"]}, "rollout": {"drain": DRAIN}}
    scenario.apply_driver(driver_spec={**spec, **chain(scenario)})


def trust(scenario: Scenario) -> None:
    """Let the images have the modules that the driver names."""
    edit(scenario, module={"trustImage": True})


def edit(scenario: Scenario, **spec: object) -> None:
    """Edit fields of the driver's spec."""
    scenario.cluster.client.patch(_PATH, {"spec": spec})


def wait_for_every_stage(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Wait until the driver is proven on both nodes, and both have every stage."""
    scenario.wait_for_ready()
    for guest in vendors.guests:
        until_every_stage(scenario, guest.name)


def wait_for_no_wave(scenario: Scenario, guest: Guest) -> None:
    """Wait until nothing of a wave is left on a node and in the status."""

    def is_over() -> bool:
        node = scenario.cluster.node(guest.name)
        kept = {names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION} & node["metadata"]["annotations"].keys()
        has_wave = "rollout" in scenario.cluster.driver(DRIVER).get("status", {})
        return not kept and not node["spec"].get("taints") and not has_wave

    acts.wait_until(scenario, "the wave is over", is_over)


def parameter(guest: Guest) -> str:
    """Return what the live module was given."""
    return guest.check("cat /sys/module/edudrv/parameters/use_irq").strip()


def proofs(scenario: Scenario) -> dict[str, str]:
    """Return the nodes of the proof pods that have ended well, by the uids of these pods."""
    pods = scenario.cluster.pods(PROOF.label)
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Succeeded"
    }


def assert_it_leaves_nothing(scenario: Scenario, vendors: VendorsDriver) -> None:
    """Delete the driver: neither a module nor a proof pod is left."""
    acts.delete_driver(scenario)
    for guest in vendors.guests:
        assert guest.run("ls /sys/module/edudrv")[0] != 0
    assert scenario.cluster.pods(PROOF.label) == []
