"""What drivers are asked to keep, what they keep, and what is said where they do not."""

from dataclasses import replace

import pytest

from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import KeptLimit
from device_agent.memory_limits.accounts import Account
from device_agent.memory_limits.by_driver import (
    MOST_REPORTED,
    Refusal,
    asked_limits,
    kept_limits,
    news,
    refusal_event,
)
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, OTHER_CARD, A, B, card, use

ACCOUNTS = (
    Account(card=CARD, pod=A, limit=10 * GIB, devices=2),
    Account(card=CARD, pod=B),
    Account(card="/dev/dri/renderD128", pod=A, limit=GIB),
)


@pytest.mark.parametrize(
    ("memory", "asked"),
    [
        pytest.param(MemorySettings(mode=MemoryMode.DRIVER), (PodLimit(CARD, A, 10 * GIB, 2),), id="driver"),
        pytest.param(MemorySettings(mode=MemoryMode.DRIVER, dry_run=True), (), id="dry run"),
        pytest.param(MemorySettings(mode=MemoryMode.WATCH), (), id="watch"),
    ],
)
def test_drivers_are_asked_for_limits_of_cards_that_are_there(
    memory: MemorySettings, asked: tuple[PodLimit, ...]
) -> None:
    """Not for a pod without a limit, which may have the card whole, and for nothing in a dry run."""
    assert asked_limits(use(card()), ACCOUNTS, memory) == asked


@pytest.mark.parametrize(
    ("kept", "accounts"),
    [
        pytest.param(KeptLimit(CARD, A, 10 * GIB), {(CARD, A)}, id="kept"),
        pytest.param(KeptLimit(CARD, A, 12 * GIB), set(), id="another limit"),
        pytest.param(KeptLimit(OTHER_CARD, A, 10 * GIB), set(), id="another card"),
        pytest.param(KeptLimit(CARD, B, 10 * GIB), set(), id="another pod"),
    ],
)
def test_an_account_is_kept_with_the_limit_that_it_has_now(kept: KeptLimit, accounts: set[tuple[str, str]]) -> None:
    """After a change of the configuration it is watched until the driver has the new one."""
    every = tuple(replace(one, used=GIB // 2) for one in ACCOUNTS)
    assert {one[:2] for one in kept_limits(use(card())._replace(kept=(kept,)), every, ())} == accounts


@pytest.mark.parametrize(
    ("used", "was_kept", "is_kept"),
    [
        pytest.param(10, False, True, id="within its limit"),
        pytest.param(12, False, False, id="had more before the limit was set"),
        pytest.param(None, False, False, id="not known yet"),
        pytest.param(12, True, True, id="the driver counts less than NVML"),
        pytest.param(None, True, True, id="not known now"),
    ],
)
def test_who_had_more_before_is_watched_until_it_has_less(used: int | None, was_kept: bool, is_kept: bool) -> None:
    """The driver takes nothing back; after that its own account decides."""
    kept = KeptLimit(CARD, A, 10 * GIB)
    every = (replace(ACCOUNTS[0], used=None if used is None else used * GIB),)
    found = kept_limits(use(card())._replace(kept=(kept,)), every, {kept} if was_kept else ())
    assert found == ({kept} if is_kept else set())


def test_a_card_that_keeps_no_limits_is_reported_once() -> None:
    """And again if the reason is another one; one that keeps them is no news."""
    refused = {CARD: "it is in MIG mode", OTHER_CARD: "nobody has a limit there"}
    first = Refusal(CARD, "it is in MIG mode")
    assert news(refused, ACCOUNTS, ()) == (first,)
    assert news(refused, ACCOUNTS, {first}) == ()
    assert news(refused, ACCOUNTS, {Refusal(CARD, "another one")}) == (first,)
    assert news({}, ACCOUNTS, {first}) == ()
    many = {Refusal(CARD, str(number)) for number in range(MOST_REPORTED)}
    assert news(refused, ACCOUNTS, many) == ()


def test_the_event_is_about_the_node() -> None:
    """The card is the node's, and no pod has done anything wrong."""
    event = refusal_event(Refusal(CARD, "it is in MIG mode"), "node-1", at="2026-11-29T08:00:00Z", suffix="0a")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert (event["metadata"], event["reason"]) == (
        {"name": "node-1.0a", "namespace": "default"},
        "DeviceMemoryLimitNotByDriver",
    )
    assert event["message"] == (
        f"the driver of {CARD} does not keep the limits of memory that it should, and the agent watches them: "
        "it is in MIG mode"
    )
