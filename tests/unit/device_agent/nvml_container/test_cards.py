"""What NVML said of cards, as the state has it."""

from typing import Any

import pytest

from device_agent.gpu_state.state import CardState, GpuInstanceState, InstanceState, MigProfileState
from device_agent.nvml_container.cards import card_states
from nvml_inventory.values import Card, Conditions, GpuInstance, Mig, MigLayout, MigProfile, Unreadable

MIG = Mig("MIG-1", "NVIDIA A100-SXM4-40GB MIG 1g.10gb+me", 9856, 14, 1, 1, 1, 0, 0, 1, 1, gi=7, ci=0)


def card(n: int = 0, **changes: Any) -> Card:
    """Make the n-th card as NVML reads it."""
    made = Card(
        uuid=f"GPU-{n}", name="NVIDIA A100-SXM4-40GB", pci_bus_id=f"0000:{n}b:00.0", memory_mib=40960, compute_major=8,
        compute_minor=0, ecc_mode=1, persistence_mode=1, mig_mode=0, virtualization=0, nvlink_links=None, minor=n,
    )  # fmt: skip
    return made._replace(**changes)


def test_a_card_has_what_nvml_its_conditions_and_sysfs_say() -> None:
    """Each from its place."""
    conditions = Conditions(recovery_action=2, row_remap_failed=True, fabric="not ready")
    cards = (card(0, mig_mode=1, migs=(MIG,), nvlinks=(("0000:1b:00.0", 12), ("0000:ff:00.0", 1))), card(1))
    first, second = card_states(cards, {0: conditions}, {"0000:0b:00.0": 1})
    assert first == CardState(
        index=0,
        uuid="GPU-0",
        name="NVIDIA A100-SXM4-40GB",
        pci="0000:0b:00.0",
        minor=0,
        memory_mib=40960,
        mig_mode=1,
        links=(("GPU-1", 12),),
        recovery_action=2,
        row_remap_failed=True,
        fabric="not ready",
        numa_node=1,
        instances=(InstanceState("MIG-1", "1g.10gb+me", 7, 0, 9856),),
    )
    assert (second.index, second.recovery_action, second.numa_node) == (1, None, None)


PROFILE = MigProfile("3g.20gb", (0, 4), 4, 2)


def test_a_card_has_what_nvml_says_of_mig() -> None:
    """Compute instances of a GPU instance are its MIG devices, largest first; one without any is there as well."""
    migs = tuple(MIG._replace(uuid=f"MIG-{ci}", gi=2, ci=ci, slices_ci=slices) for ci, slices in enumerate((1, 2)))
    layout = MigLayout((PROFILE,), (GpuInstance(1, "3g.20gb", 0, 4), GpuInstance(2, "3g.20gb", 4, 4)))
    known = card(0, mig_mode=1, mig_pending=0, pci_id="0x20b010de", migs=migs)
    (state,) = card_states((known,), {}, {}, {"GPU-0": layout})
    assert (state.pci_id, state.mig_pending) == ("0x20b010de", 0)
    assert state.mig_profiles == (MigProfileState("3g.20gb", (0, 4), 4, 2),)
    assert state.gpu_instances == (GpuInstanceState(1, "3g.20gb", 0, 4), GpuInstanceState(2, "3g.20gb", 4, 4, (2, 1)))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(MigLayout((PROFILE._replace(name=""),)), id="a profile without a name"),
        pytest.param(MigLayout((PROFILE._replace(starts=(0, 8)),)), id="a place that no card has"),
        pytest.param(MigLayout((), (GpuInstance(1, "3g.20gb", -1, 4),)), id="an instance at a negative place"),
        pytest.param(MigLayout((), (GpuInstance(1, "3g.20gb", 0, 4),) * 9), id="too many instances"),
    ],
)
def test_of_mig_that_makes_no_sense_nothing_is_said(layout: MigLayout) -> None:
    """The card and its devices are offered on; nothing of MIG is half said."""
    known = card(0, mig_mode=1, mig_pending=1, pci_id="0x20b010de", migs=(MIG,))
    (state,) = card_states((known,), {}, {}, {"GPU-0": layout})
    assert (state.why, state.uuid, len(state.instances)) == ("", "GPU-0", 1)
    assert (state.pci_id, state.mig_pending, state.gpu_instances, state.mig_profiles) == ("", None, (), ())


def test_a_card_that_cannot_be_read_has_its_reason_and_its_name() -> None:
    """In the words of nvml_inventory; a control sequence in them is left out."""
    lost = Unreadable("GPU 0 cannot be read: GPU is lost\x1b[31m", index=0, error=15, uuid="GPU-0", pci="0000:0b:00.0")
    assert card_states([lost], {}, {}) == (
        CardState(0, uuid="GPU-0", pci="0000:0b:00.0", why="GPU 0 cannot be read: GPU is lost", error=15),
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(card(uuid="GPU\n1"), "GPU 0.uuid is not a short word", id="a UUID with a line break"),
        pytest.param(card(uuid="x" * 500), "GPU 0.uuid is not a short word", id="a long UUID"),
        pytest.param(card(uuid=""), "it has no UUID", id="no UUID"),
        pytest.param(card(pci_bus_id="0000:../x"), "", id="a PCI address that is only odd"),
        pytest.param(card(pci_bus_id="0000: b"), "GPU 0.pci is not a short word", id="a PCI address that is none"),
        pytest.param(card(minor=-1), "GPU 0.minor is not an integer", id="a negative minor"),
        pytest.param(card(memory_mib=2**70), "GPU 0.memory_mib is not an integer", id="too much memory"),
        pytest.param(card(mig_mode=7), "GPU 0.mig_mode is not an integer", id="another MIG mode"),
        pytest.param(card(migs=(MIG._replace(gi=None),)), "instances[0].gi is not an integer", id="no GPU instance"),
    ],
)
def test_what_makes_no_sense_is_a_reason_against_its_card_alone(bad: Card, why: str) -> None:
    """The other one is there."""
    first, second = card_states((bad, card(1)), {}, {})
    assert why in first.why
    assert bool(first.why) == bool(why)
    assert (second.uuid, second.why) == ("GPU-1", "")


def test_two_cards_with_one_uuid_are_not_both_given() -> None:
    """The second one has the reason."""
    first, second = card_states((card(0), card(1, uuid="GPU-0")), {}, {})
    assert (first.why, second.why) == ("", "GPU 1 cannot be used: another one has its UUID, GPU-0")


def test_there_is_room_for_so_many_cards() -> None:
    """The others are left out."""
    assert len(card_states([card(n) for n in range(70)], {}, {})) == 64


def test_a_name_is_cut_and_printable() -> None:
    """Any bytes may be in it."""
    (state,) = card_states([card(name="A\x1b[31m\x00B" + "x" * 1000)], {}, {})
    assert state.name.startswith("ABx")
    assert (len(state.name), state.why) == (500, "")
