"""GPUs and MIG instances become units of resources, by the strategy that the configuration asks for."""

from collections.abc import Mapping

import pytest

from device_agent.devices.model import BindMount, DeviceNode, Unit
from device_agent.gpu_state.state import CardState
from device_agent.profiles.strategy import resource_name
from device_agent.sources.nvidia.libraries import Libraries
from device_agent.sources.nvidia.units import Offer, View, offer
from device_resources.nvidia import MigStrategy
from tests.unit.device_agent.nvidia.states import card, lost, nodes, split, uuid

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED
GPU, SMALL, LARGE, DOUBLE = (f"nvidia.com/{name}" for name in ("gpu", "mig-1g.5gb", "mig-3g.20gb", "mig-1g.10gb.me"))
CAPS = [f"gpu{card}/mig/gi{gi}{ci}/access" for card in range(2) for gi in range(1, 8) for ci in ("", "/ci0")]
GONE = {"why": "GPU is lost", "error": 15}
COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def ids(made: Offer) -> dict[str, list[str]]:
    """Return the ids of each resource."""
    return {name: [unit.id for unit in units] for name, units in made.resources.items()}


def one(*cards: CardState, view: View) -> Unit:
    """Return the only unit."""
    (unit,) = (unit for units in offer(cards, view).resources.values() for unit in units)
    return unit


@pytest.mark.parametrize(
    ("strategy", "cards", "expected"),
    [
        pytest.param(NONE, [card(0), card(1)], {GPU: ["GPU-0", "GPU-1"]}, id="none: full GPUs"),
        pytest.param(NONE, [split(0, "1g.5gb"), card(1)], {GPU: ["GPU-0", "GPU-1"]}, id="none: also in MIG mode"),
        pytest.param(NONE, [], {GPU: []}, id="none: no GPU"),
        pytest.param(SINGLE, [], {GPU: []}, id="single: no GPU"),
        pytest.param(MIXED, [], {GPU: []}, id="mixed: no GPU"),
        pytest.param(SINGLE, [card(0), card(1)], {GPU: ["GPU-0", "GPU-1"]}, id="single: no GPU in MIG mode"),
        pytest.param(SINGLE, [split(0, "1g.5gb", "1g.5gb"), split(1, "1g.5gb")],
                     {GPU: ["MIG-0-1", "MIG-0-2", "MIG-1-1"]}, id="single: instances of one profile"),
        pytest.param(SINGLE, [split(0, "1g.5gb"), lost(1, uuid="GPU-1")], {GPU: ["MIG-0-1"]},
                     id="single: one of which nothing is known"),
        pytest.param(SINGLE, [split(0, "1g.5gb"), split(1, "1g.5gb", why="GPU is lost", error=15)],
                     {GPU: ["MIG-0-1", "MIG-1-1"]}, id="single: a lost one whose instances are known"),
        pytest.param(SINGLE, [split(0, "1g.5gb"), split(1, "3g.20gb", **GONE)], {GPU: ["MIG-0-1"]},
                     id="single: a lost one that had another profile"),
        pytest.param(SINGLE, [split(0, "1g.5gb"), card(1, **GONE)], {GPU: ["MIG-0-1"]},
                     id="single: a lost one that was whole"),
        pytest.param(SINGLE, [card(0), split(1, "1g.5gb", **GONE)], {GPU: ["GPU-0"]},
                     id="single: a lost one that was split, beside whole ones"),
        pytest.param(SINGLE, [split(0, "1g.5gb", **GONE), lost(1, uuid="GPU-1")], {GPU: ["MIG-0-1"]},
                     id="single: only lost ones"),
        pytest.param(MIXED, [card(0), split(1, "1g.5gb", "3g.20gb"), split(2, "1g.5gb")],
                     {GPU: ["GPU-0"], SMALL: ["MIG-1-1", "MIG-2-1"], LARGE: ["MIG-1-2"]}, id="mixed: by profile"),
        pytest.param(MIXED, [split(0, "1g.10gb+me")], {GPU: [], DOUBLE: ["MIG-0-1"]}, id="mixed: with media engines"),
    ],
)  # fmt: skip
def test_units_by_strategy(strategy: MigStrategy, cards: list[CardState], expected: Mapping[str, object]) -> None:
    """Each unit has the UUID of its GPU or instance, and full GPUs are always a resource."""
    made = offer(cards, View(strategy=strategy, nodes=nodes(*range(8), caps=CAPS)))
    assert ids(made) == expected
    assert made.reasons == ()


@pytest.mark.parametrize(
    ("strategy", "cards", "expected", "reason"),
    [
        pytest.param(SINGLE, [split(0, "1g.5gb"), card(1)], {GPU: []}, "GPU-1 is not in it, others are",
                     id="single: one GPU without MIG mode"),
        pytest.param(SINGLE, [split(0, "1g.5gb", "3g.20gb")], {GPU: []}, "there are 1g.5gb and 3g.20gb",
                     id="single: two profiles"),
        pytest.param(SINGLE, [split(0, "1g.5gb"), split(1)], {GPU: []}, "GPU-1 is in MIG mode and has no instances",
                     id="single: a GPU without instances"),
        pytest.param(MIXED, [split(0)], {GPU: []}, "GPU-0 is in MIG mode and has no instances",
                     id="mixed: without instances"),
        pytest.param(MIXED, [split(0, "", "1g.5gb")], {GPU: [], SMALL: ["MIG-0-2"]}, "MIG-0-1 has a profile without a",
                     id="mixed: no profile"),
    ],
)  # fmt: skip
def test_what_cannot_be_offered_has_a_reason(
    strategy: MigStrategy, cards: list[CardState], expected: Mapping[str, object], reason: str
) -> None:
    """The list is empty, or has the others."""
    made = offer(cards, View(strategy=strategy, nodes=nodes(*range(8), caps=CAPS)))
    assert ids(made) == expected
    (said,) = made.reasons
    assert reason in said


def test_a_gpu_brings_its_node_and_those_of_all() -> None:
    """With its UUID for whoever looks for it, where it is, and to whom it is linked."""
    libraries = Libraries(
        mounts=(BindMount(path="/run/nvidia/driver/usr/lib64", mount_path="/usr/local/nvidia/lib64"),)
    )
    unit = one(card(3, links=(("GPU-1", 12),)), view=View(nodes=nodes(0, 1, 2, 3), libraries=libraries))
    assert unit == Unit(
        id="GPU-3",
        numa_nodes=(1,),
        links={"GPU-1": 12},
        files=(
            *(DeviceNode(path=path, mount_path=path, permissions="rw") for path in ("/dev/nvidia3", *COMMON)),
            *libraries.mounts,
        ),
        environment={"NVIDIA_VISIBLE_DEVICES": "GPU-3"},
        identity=("/dev/nvidia3 195:3",),
    )


def test_an_instance_brings_its_two_capabilities() -> None:
    """Of its GPU instance and its compute instance, and no others; it has no links."""
    made = offer([split(1, "1g.5gb", "1g.5gb")], View(strategy=SINGLE, nodes=nodes(1, caps=CAPS)))
    second = made.resources[GPU][1]
    number = 12 + CAPS.index("gpu1/mig/gi2/access")
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}", f"/dev/nvidia-caps/nvidia-cap{number + 1}"]
    assert [file.path for file in second.files] == ["/dev/nvidia1", *caps, *COMMON]
    assert second.environment == {"NVIDIA_VISIBLE_DEVICES": "MIG-1-2"}
    assert second.identity == ("/dev/nvidia1 195:1", *caps)
    assert second.links == {}
    assert second.is_healthy


@pytest.mark.parametrize(
    ("view", "why", "is_known"),
    [
        pytest.param(View(nodes=nodes(1)), "/dev/nvidia0 is missing", False, id="no node"),
        pytest.param(View(nodes=[node._replace(why="it is another device") for node in nodes(0)]),
                     "/dev/nvidia0: it is another device", False, id="a wrong node"),
        pytest.param(View(nodes=[node._replace(why="missing") if node.path == "/dev/nvidia-uvm" else node
                                 for node in nodes(0)]), "/dev/nvidia-uvm: missing", False, id="a wrong node of all"),
        pytest.param(View(nodes=[node for node in nodes(0) if node.path != "/dev/nvidia-uvm"]),
                     "/dev/nvidia-uvm is missing: the module nvidia_uvm is not loaded", False, id="no UVM"),
        pytest.param(View(nodes=nodes(0), is_current=False), "not known which device node", False, id="another driver"),
        pytest.param(View(nodes=nodes(0), trouble="NVML hangs"), "NVML hangs", True, id="nothing may be given"),
        pytest.param(View(nodes=nodes(0), libraries=Libraries(why="there is no libcuda.so.1")), "no libcuda.so.1", True,
                     id="no libraries"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_why_a_gpu_is_not_given(view: View, why: str, is_known: bool) -> None:
    """What its node is, is said where it and those of all are right: a container may start again while NVML hangs."""
    unit = one(card(0), view=view)
    assert why in unit.why
    assert unit.identity == (("/dev/nvidia0 195:0",) if is_known else ())


def test_nodes_that_are_not_needed_may_be_missing() -> None:
    """A driver without modeset has GPUs all the same."""
    needed = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    few = [node for node in nodes(0) if node.path in needed]
    unit = one(card(0), view=View(nodes=few))
    assert unit.is_healthy
    assert [file.path for file in unit.files] == needed


def test_an_instance_without_its_capability_is_not_given() -> None:
    """And its name says which is missing."""
    unit = one(split(0, "1g.5gb"), view=View(strategy=SINGLE, nodes=nodes(0, caps=["gpu0/mig/gi1/access"])))
    assert unit.why.endswith("capability gpu0/mig/gi1/ci0/access is missing")


def test_a_gpu_without_a_minor_number_is_not_given() -> None:
    """Any node may be another GPU's."""
    assert "not known which device node" in one(card(0, minor=None), view=View(nodes=nodes(0))).why


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1c.3g.20gb", "nvidia.com/mig-1c.3g.20gb"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("", None),
        ("1g.5gb/", None),
        ("x" * 60, None),
    ],
)
def test_the_name_of_a_profile(profile: str, name: str | None) -> None:
    """It is NVIDIA's, and one that Kubernetes accepts."""
    assert resource_name(profile) == name


@pytest.mark.parametrize("gone", range(8))
def test_one_that_cannot_be_read_takes_no_other_with_it(gone: int) -> None:
    """Seven of eight are given."""
    cards = [card(number, why="GPU is lost" if number == gone else "") for number in range(8)]
    units = offer(cards, View(nodes=nodes(*range(8)))).resources[GPU]
    assert [unit.id for unit in units if not unit.is_healthy] == [uuid(gone)]
