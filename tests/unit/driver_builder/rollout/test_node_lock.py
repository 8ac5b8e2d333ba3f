"""The lock of a node: what is read of an annotation that anybody may write, and when it ends."""

from dataclasses import replace

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.node_lock import lock_of
from kube_api import names
from kube_api.node_lock import Lock, parse_lock, render_lock
from tests.support.driver_builder.factories import BOOT_ID, NOW, node

OURS = render_lock("ns/edu", BOOT_ID, NOW)


def test_what_is_written_is_read() -> None:
    """Holder, boot and time come back."""
    assert parse_lock(OURS) == Lock(holder="ns/edu", boot_id=BOOT_ID, renewed=NOW)
    assert lock_of(node()) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "gpu-partitioner", "[]", "null", "{}", '{"holder":"a"}', '{"holder":"","renewTime":"2026-11-24T10:00:00Z"}',
        '{"holder":"a","renewTime":"soon"}', '{"holder":"a","renewTime":7}', '{"holder":"a","renewTime":"9999-01-01"}',
    ],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_does_not_expire(text: str) -> None:
    """Who holds it is unknown: an admin has to look."""
    lock = parse_lock(text)
    assert lock == Lock()
    assert not lock.is_expired(NOW * 2)
    assert "cannot be read" in str(lock)


@pytest.mark.parametrize(
    ("later", "is_due", "is_expired"),
    [(0, False, False), (299, False, False), (300, True, False), (599, True, False), (600, True, True),
     (-1, True, False)],
)  # fmt: skip
def test_a_lock_is_renewed_at_half_of_its_time(later: int, is_due: bool, is_expired: bool) -> None:
    """It is written rarely, and two renewals may fail before somebody else may take it."""
    lock = parse_lock(OURS)
    assert lock.is_due(BOOT_ID, NOW + later) is is_due
    assert lock.is_expired(NOW + later) is is_expired


def test_a_lock_of_another_boot_is_renewed_at_once() -> None:
    """It names the boot in which its holder works."""
    assert parse_lock(OURS).is_due("another", NOW)


def test_locks_that_have_expired_bind_nobody() -> None:
    """The others are named with who holds them, and until when."""
    locked = replace(node(), annotations={names.LOCK_ANNOTATION: OURS})
    words = "node node-a is locked by ns/edu until 2023-11-14T22:23:20Z"
    found = Holds.of((locked, node("node-b")), NOW)
    assert [found.obstacle("node-a", DriverKey("ns/other")), found.obstacle("node-a", DriverKey("ns/edu"))] == [
        words,
        "",
    ]
    assert found.obstacle("node-b", DriverKey("ns/other")) == ""
    assert Holds.of((locked,), NOW + 600).obstacle("node-a", DriverKey("ns/other")) == ""
