"""Who has which card, and how much each pod uses: never more than the card, never another pod's."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.devices.model import Unit
from device_agent.gpu_state.use import CardUse, ProcessUse
from device_agent.usage.attribution import (
    NOBODY,
    Allocated,
    Owner,
    PodUse,
    allocated,
    card_views,
    fresh,
    pods_of,
    still_offered,
)
from tests.unit.device_agent.usage.examples import (
    GPU,
    MIB,
    SHARED,
    amd,
    card,
    held,
    holder,
    instance,
    offers,
    process,
    use,
)

A, B = Owner("default", "a", "main"), Owner("default", "b", "main")


@pytest.mark.parametrize(
    ("devices", "owner"),
    [
        pytest.param([], NOBODY, id="nobody has it"),
        pytest.param([held("GPU-0", "a")], A, id="one container has it"),
        pytest.param([held("GPU-0", "a"), held("GPU-0", "a", "side")], Owner("default", "a"), id="two containers"),
        pytest.param([held("GPU-0::1", "a")], NOBODY, id="one share is given"),
        pytest.param([held("GPU-0::0", "a"), held("GPU-0::1", "a")], NOBODY, id="one pod has two shares"),
        pytest.param([held("GPU-0", "a"), held("GPU-0", "b")], NOBODY, id="two pods, of which one has ended"),
        pytest.param([held("GPU-1", "a")], NOBODY, id="another card is given"),
        pytest.param([held("MIG-0-1", "a")], NOBODY, id="a MIG device of it is given"),
    ],
)
def test_a_card_is_of_the_one_pod_that_has_it_whole(devices: list[Allocated], owner: Owner) -> None:
    """All other cards are nobody's, as a whole."""
    assert card_views(use(card()), devices)[0].owner == owner


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        pytest.param([], {"a": (0, 0), "b": (0, 0)}, id="no process at all"),
        pytest.param([process("a")], {"a": (100, 10), "b": (0, 0)}, id="of one of the pods"),
        pytest.param(
            [process("a"), process("a", 50 * MIB, 5, pid=2)], {"a": (150, 15), "b": (0, 0)}, id="two of a pod"
        ),
        pytest.param([process("a"), process("a")], {"a": (100, 10), "b": (0, 0)}, id="one that is listed twice"),
        pytest.param([process("c")], {"a": (0, 0), "b": (0, 0)}, id="of a pod that does not have the card"),
        pytest.param([process("a", None)], {"a": (None, 10), "b": (0, 0)}, id="of unknown memory"),
        pytest.param([process("a", None), process("a", pid=2)], {"a": (100, 20), "b": (0, 0)}, id="of partly unknown"),
        pytest.param([process("a", busy=None)], {"a": (100, None), "b": (0, 0)}, id="of unknown time"),
    ],
)
def test_a_shared_card_is_split_by_its_processes(
    processes: list[ProcessUse], expected: dict[str, tuple[int | None, float | None]]
) -> None:
    """A pod without a process uses nothing; what is not known is not counted."""
    (view,) = card_views(use(card(0, *processes)), [held("GPU-0::0", "a"), held("GPU-0::1", "b")])
    found = {one.owner.pod: (None if one.memory is None else one.memory // MIB, one.busy) for one in view.pods}
    assert found == expected


@pytest.mark.parametrize(
    ("asked", "why", "expected"),
    [
        pytest.param(None, "", [], id="processes were not asked for"),
        pytest.param(("a", "b"), "the pod has no hostPID", [], id="they cannot be told"),
        pytest.param(("b",), "", ["b"], id="of one pod it was asked for later"),
    ],
)
def test_without_processes_nothing_is_said_of_a_pod(
    asked: tuple[str, ...] | None, why: str, expected: list[str]
) -> None:
    """Not even that it uses nothing."""
    said = use(card(0, process("a")), pods=asked, processes=why)
    (view,) = card_views(said, [held("GPU-0::0", "a"), held("GPU-0::1", "b")])
    assert [one.owner.pod for one in view.pods] == expected


def test_of_two_pods_of_one_name_nothing_is_said() -> None:
    """As while a pod is replaced: it cannot be said which of them has the card."""
    processes = [process("a"), process("a", pid=7)._replace(uid="f" * 32), process("b", pid=8)]
    (view,) = card_views(use(card(0, *processes)), [held("GPU-0::0", "a"), held("GPU-0::1", "b")])
    assert [one.owner.pod for one in view.pods] == ["b"]


def test_a_pod_that_is_replaced_is_known_on_no_card() -> None:
    """Not on those either that one of both has alone: its devices may be the other one's."""
    cards = card(0, process("a")), card(1, process("a", pid=7)._replace(uid="f" * 32))
    views = card_views(use(*cards), [held("GPU-0::0", "a"), held("GPU-1::0", "a"), held("GPU-1::1", "b")])
    assert [[one.owner.pod for one in view.pods] for view in views] == [[], ["b"]]


def test_a_pod_of_which_not_all_open_files_were_looked_at_is_known_on_nvidias_cards_alone() -> None:
    """A part of what it uses would look like all of it."""
    said = use(amd(0, process("a"), process("b", pid=7)), card(0, process("a", pid=8)), unread=("default/a",))
    devices = [held(f"x::{n}", pod, resource="example.com/gpu", pci={"0000:03:00.0"}) for n, pod in enumerate("ab")]
    views = card_views(said, [*devices, held("GPU-0::0", "a")])
    assert [[one.owner.pod for one in view.pods] for view in views] == [["b"], ["a"]]


def test_of_a_card_whose_use_is_not_known_a_pod_uses_no_known_amount() -> None:
    """0 would be a value."""
    (view,) = card_views(use(card(values={})), [held("GPU-0::0", "a")])
    assert view.pods == (PodUse(A, None, None),)


def test_a_mig_device_is_one_of_its_own() -> None:
    """With its card as its parent; whole, or shared itself."""
    said = use(card(), instance(1), instance(2, processes=(process("b"),)))
    parent, first, second = card_views(said, [held("MIG-0-1", "a"), held("MIG-0-2::0", "b")])
    assert (parent.owner, parent.parent) == (NOBODY, None)
    assert (first.owner, first.parent) == (A, card())
    assert (second.owner, second.pods) == (NOBODY, (PodUse(B, 100 * MIB, 10),))


@pytest.mark.parametrize(
    ("devices", "owner", "pods"),
    [
        pytest.param([], NOBODY, (), id="of nobody"),
        pytest.param([held("MIG-0-1", "a"), held("MIG-0-2", "b")], NOBODY,
                     (PodUse(A, 60 * MIB, 10), PodUse(B, 30 * MIB, 10)), id="of two pods"),
        pytest.param([held("MIG-0-1", "a"), held("MIG-0-2", "a")], A, (), id="of one pod"),
        pytest.param([held("MIG-0-2", "b")], B, (), id="of one pod that has one of them"),
    ],
)  # fmt: skip
def test_compute_instances_have_the_memory_of_their_gpu_instance_together(
    devices: list[Allocated], owner: Owner, pods: tuple[PodUse, ...]
) -> None:
    """NVML says of each of them what all use: no pod gets what is another one's."""
    first = instance(1, processes=(process("a", 60 * MIB),))
    second = instance(1, id="MIG-0-2", processes=(process("b", 30 * MIB, pid=7),))
    _, *views, other = card_views(use(card(), first, second, instance(3)), devices)
    assert {(view.owner, view.pods) for view in views} == {(owner, pods)}
    assert (other.owner, other.pods) == (NOBODY, ())


@pytest.mark.parametrize(
    ("pci", "owners"),
    [
        pytest.param({"0000:03:00.0"}, [A, NOBODY], id="one card"),
        pytest.param({"0000:03:00.0", "0000:04:00.0"}, [A, A], id="two cards in one unit"),
        pytest.param({"0000:99:00.0"}, [NOBODY, NOBODY], id="no card"),
        pytest.param(set(), [NOBODY, NOBODY], id="not on PCI"),
    ],
)
def test_cards_of_other_vendors_are_found_by_their_address(pci: set[str], owners: list[Owner]) -> None:
    """The id of a unit of files says nothing of the card."""
    devices = [held("dri-card0-1f0c2a9b", "a", resource="example.com/gpu", pci=pci)]
    assert [view.owner for view in card_views(use(amd(0), amd(1)), devices)] == owners


def test_what_containers_have_is_listed_with_its_unit() -> None:
    """Of the agent's resources alone; a device that is no longer offered is known by its id."""
    holders = {
        (SHARED, "GPU-0::1"): frozenset({holder("b"), holder("b", "side")}),
        (GPU, "GPU-1"): frozenset({holder("a")}),
        (SHARED, "GPU-9::0"): frozenset({holder("c")}),
        ("example.com/nic", "eth1"): frozenset({holder("d")}),
    }
    resources = {GPU: offers(Unit(id="GPU-1")), SHARED: offers(Unit(id="GPU-0", shares=4))}
    assert allocated(holders, resources, {"GPU-0": {"0000:3b:00.0"}}) == (
        held("GPU-1", "a"),
        held("GPU-0::1", "b", pci={"0000:3b:00.0"}),
        held("GPU-0::1", "b", "side", pci={"0000:3b:00.0"}),
        held("GPU-9::0", "c"),
    )
    assert pods_of(holders, resources) == ("default/a", "default/b", "default/c")


def test_what_is_no_longer_offered_is_known_as_long_as_a_container_has_it() -> None:
    """A profile that changes names resources anew, and takes no device from a pod that runs; then it is forgotten."""
    shares = Unit(id="dri-card0", shares=2)
    before, now = {SHARED: offers(shares)}, {GPU: offers(Unit(id="dri-card0"))}
    holders = {
        (SHARED, "dri-card0::1"): frozenset({holder("a")}),
        ("example.com/nic", "eth1"): frozenset({holder("d")}),
    }
    known = still_offered(now, before, holders)
    assert known == {**now, SHARED: {"dri-card0::1": before[SHARED]["dri-card0::1"]}}
    assert [one.unit for one in allocated(holders, known, {})] == ["dri-card0"]
    assert still_offered(now, known, {}) == now


def test_a_pod_that_has_ended_has_its_devices_while_podresources_names_it() -> None:
    """The kubelet frees them at its next allocation, and gives them to nobody before."""
    devices = [held("GPU-0::0", "a"), held("GPU-0::1", "b")]
    (view,) = card_views(use(card(0, process("b"))), devices)
    assert view.pods == (PodUse(A, 0, 0), PodUse(B, 100 * MIB, 10))


@pytest.mark.parametrize(
    ("now", "counts"),
    [
        pytest.param(100.0, True, id="at once"),
        pytest.param(105.0, True, id="after five seconds"),
        pytest.param(105.1, False, id="later"),
        pytest.param(98.0, False, id="of the future"),
    ],
)
def test_old_use_says_nothing_of_now(now: float, counts: bool) -> None:
    """Nor does use that was read later than now."""
    said = use(card())
    assert fresh(said, now) == (said if counts else None)
    assert fresh(None, now) is None


PODS = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.none() | st.integers(0, 2**40)
PROCESSES = st.lists(
    st.builds(process, PODS, AMOUNTS, st.none() | st.floats(0, 100) | st.integers(0, 100), st.integers(1, 20)),
    max_size=12,
)
VALUES = st.fixed_dictionaries(
    {}, optional={"memory_used": st.integers(0, 2**40), "memory_total": st.integers(0, 2**40),
                  "busy_percent": st.floats(0, 100) | st.integers(0, 100)}
)  # fmt: skip
CARDS = st.builds(lambda number, processes, values: card(number, *processes, values=values),
                  st.integers(0, 1), PROCESSES, VALUES)  # fmt: skip
HELD = st.lists(st.builds(held, st.sampled_from(["GPU-0", "GPU-0::0", "GPU-0::1", "GPU-1", "GPU-1::0"]), PODS))


@given(st.lists(CARDS, max_size=3), HELD, st.none() | st.sets(PODS).map(tuple))
def test_pods_together_never_use_more_than_their_card(
    cards: list[CardUse], devices: list[Allocated], asked: tuple[str, ...] | None
) -> None:
    """In bytes, in MiB, and of its time; and none has a process' use on a card that it does not have."""
    for view in card_views(use(*cards, pods=asked), devices):
        values = view.card.values
        memory = [one.memory for one in view.pods if one.memory is not None]
        if (most := values.get("memory_used", values.get("memory_total"))) is not None:
            assert sum(memory) <= most
            assert sum(one // MIB for one in memory) <= most // MIB
        busy = sum(Fraction(one.busy) for one in view.pods if one.busy is not None)
        assert busy <= Fraction(values.get("busy_percent", 100)) + Fraction(1, 10**9)
        having = {one.holder.name for one in devices if one.unit == view.card.id}
        assert {one.owner.pod for one in view.pods} <= having & set(asked or ())
        for one in view.pods:
            own = {
                (each.pid, each.start): each for each in view.card.processes if each.pod == f"default/{one.owner.pod}"
            }
            known = [each.memory for each in own.values() if each.memory is not None]
            assert one.memory is None or one.memory <= sum(known)
