"""What each pod uses of each card, and may use."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import Use
from device_agent.memory_limits.accounts import Account, accounts, pod_limits
from device_agent.usage.attribution import Allocated
from device_resources.memory_limits import MemorySettings
from tests.unit.device_agent.memory_limits.examples import (
    CARD,
    GIB,
    OTHER_CARD,
    UIDS,
    WHOLE,
    A,
    B,
    card,
    given_as,
    held,
    process,
    use,
)

HELD = [held("GPU-0::0"), held("GPU-0::1", B)]
GIVEN = given_as(4, "GPU-0::0", "GPU-0::1", "GPU-1::0")
SETTINGS = MemorySettings()


def _accounts(said: Use, devices: Sequence[Allocated] = HELD) -> dict[tuple[str, str], Account]:
    return {(one.card, one.pod): one for one in accounts(said, devices, GIVEN, SETTINGS)}


def test_each_pod_has_what_its_processes_use() -> None:
    """All of them together, beside what the pod may use, and each pod for itself."""
    first, second, third = process(10, 3), process(11, 4), process(12, 1, B)
    found = accounts(use(card(first, third, second)), HELD, GIVEN, SETTINGS)
    limit = 10 * GIB
    assert found == (
        Account(card=CARD, pod=A, uid=UIDS[A], limit=limit, used=7 * GIB, processes=(first, second)),
        Account(card=CARD, pod=B, uid=UIDS[B], limit=limit, used=GIB, processes=(third,)),
    )


@pytest.mark.parametrize(
    ("said", "used"),
    [
        pytest.param(use(card()), 0, id="no process"),
        pytest.param(use(card(process(10, 2), process(11, None))), 2 * GIB, id="one process is not known"),
        pytest.param(use(card(process(10, None))), None, id="no process is known"),
        pytest.param(use(card(process(10, 2)), pods=(B,)), None, id="the pod was not asked for yet"),
        pytest.param(use(card(process(10, 2)), pods=None), None, id="no pod was asked for"),
        pytest.param(use(card(process(10, 2)), why="no hostPID"), None, id="processes cannot be said to be of a pod"),
        pytest.param(use(card(name=OTHER_CARD)), None, id="the card could not be read"),
        pytest.param(use(card(process(10, 2), process(11, 2, uid="c" * 32))), None, id="two pods have this name"),
        pytest.param(use(card(process(10, 2)), card(process(11, 2, uid="c" * 32), name=OTHER_CARD)), None,
                     id="two pods have this name, on two cards"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_no_number(said: Use, used: int | None) -> None:
    """None is what nothing is decided of; 0 is a pod that uses nothing."""
    found = _accounts(said)[CARD, A]
    assert found.used == used


def test_a_process_of_a_pod_without_the_card_counts_for_nobody() -> None:
    """By podresources B has another card: what it uses of this one is neither its own nor that of A."""
    devices = [held("GPU-0::0"), held("GPU-1::0", B)]
    found = _accounts(use(card(process(10, 2), process(11, 30, B)), card(name=OTHER_CARD)), devices)
    assert {key: (one.used, one.processes) for key, one in found.items()} == {
        (CARD, A): (2 * GIB, (process(10, 2),)),
        (OTHER_CARD, B): (0, ()),
    }


@pytest.mark.parametrize(
    ("device", "said"),
    [
        pytest.param(held("GPU-0", resource=WHOLE), use(card(process(10, 39))), id="a whole card"),
        pytest.param(held("GPU-0::0"), use(card(process(10, 39), parent="GPU-9")), id="a MIG device"),
        pytest.param(held("MIG-0::0"), use(), id="a MIG device that is not seen"),
    ],
)
def test_whole_cards_and_mig_devices_have_no_limit(device: Allocated, said: Use) -> None:
    """Nobody else is harmed by what their holders use."""
    (found,) = accounts(said, [device], given_as(4, "MIG-0::0", "GPU-0::0"), SETTINGS)
    assert found.limit is None


def test_a_limit_is_of_the_pod_that_is_seen_on_any_card() -> None:
    """Where two of one name are seen, it is of the name, as where none is."""
    seen, unseen = Account(card=CARD, pod=A, uid="1", limit=GIB), Account(card="GPU-1", pod=A, limit=GIB)
    other = Account(card="GPU-2", pod=B, limit=GIB)
    assert [one.uid for one in pod_limits([seen, unseen, other])] == ["1", "1", ""]
    assert [one.uid for one in pod_limits([seen, replace(unseen, uid="2"), other])] == ["", "", ""]


def test_devices_of_one_card_are_one_account() -> None:
    """Two shares, of two resources even, are one limit: the memory is that of one card."""
    devices = [held("GPU-0::0"), held("GPU-0::2", resource="nvidia.com/l4.shared")]
    given = {**GIVEN, **given_as(4, "GPU-0::2", resource="nvidia.com/l4.shared")}
    (found,) = accounts(use(card()), devices, given, SETTINGS)
    assert (found.limit, found.devices) == (20 * GIB, 2)
    assert pod_limits([found, replace(found, limit=None)]) == (PodLimit(CARD, A, 20 * GIB, 2),)


def test_a_device_of_two_cards_is_limited_on_each() -> None:
    """Its share is one of both: what it uses of the second one harms others as well."""
    resource, device, (first, second) = "example.com/pair", "pair-1f0c2a9b::0", ("0000:03:00.0", "0000:04:00.0")
    cards = [card(process(10, size), name=pci)._replace(pci=pci) for pci, size in ((first, 1), (second, 30))]
    found = accounts(
        use(*cards),
        [held(device, resource=resource, pci=frozenset({first, second}))],
        given_as(2, device, resource=resource),
        SETTINGS,
    )
    assert [(one.card, one.used, one.limit) for one in found] == [
        (first, GIB, 20 * GIB),
        (second, 30 * GIB, 20 * GIB),
    ]


def test_a_device_of_files_is_on_the_card_that_the_agent_says() -> None:
    """Units of the node's files have names of their own."""
    resource = "example.com/card"
    device, pci = "renderD128-1f0c2a9b::0", "0000:03:00.0"
    found = accounts(
        use(card(process(10, 2), name=pci)._replace(pci=pci)),
        [held(device, resource=resource, pci=frozenset({pci}))],
        given_as(2, device, resource=resource),
        SETTINGS,
    )
    assert [(one.card, one.used, one.limit) for one in found] == [("0000:03:00.0", 2 * GIB, 20 * GIB)]


def test_a_pod_of_which_not_all_open_files_were_looked_at_uses_an_unknown_amount_of_other_vendors_cards() -> None:
    """What was seen may be a part. Of NVIDIA's cards NVML says it all: there nobody hides behind open files."""
    pci, resource = "0000:03:00.0", "example.com/card"
    amd = card(process(10, 2), process(11, 3, B), name=pci)._replace(pci=pci, driver="amdgpu")
    gpu = card(process(10, 4))._replace(pci="0000:04:00.0")
    devices = [held(f"card::{n}", pod, resource=resource, pci=frozenset({pci})) for n, pod in enumerate((A, B))]
    said = use(amd, gpu)._replace(unread=(A,))
    found = accounts(said, [*devices, held(f"{CARD}::0")], {}, MemorySettings())
    assert {(one.card, one.pod): one.used for one in found} == {
        (pci, A): None,
        (pci, B): 3 * GIB,
        (CARD, A): 4 * GIB,
    }


def test_a_card_whose_processes_could_not_be_read_says_nothing_of_use() -> None:
    """Nobody uses 0 of it: who was over the limit is that still."""
    unread = card(process(7, 30))._replace(processes=(), is_unread=True)
    (account,) = accounts(use(unread), (held(f"{CARD}::0"),), given_as(2, f"{CARD}::0"), MemorySettings())
    assert (account.used, account.limit) == (None, 20 * GIB)
