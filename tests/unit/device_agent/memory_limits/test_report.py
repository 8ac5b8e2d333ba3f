"""What is said of limits."""

import pytest

from device_agent.memory_limits.accounts import Account
from device_agent.memory_limits.report import MOST_KILLS, Kills, api_uid, counted, event, samples, words
from device_agent.memory_limits.watch import Ending
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, OTHER_CARD, A, B, process

UID = "0a1b2c3d-1111-4222-8333-444455556666"
HASH = "0a1b2c3d11110222c333444455556666"
PROCESS = process(4711, 8.5, uid=UID.replace("-", ""))
ACCOUNT = Account(card=CARD, pod=A, uid=PROCESS.uid, limit=10 * GIB, used=12 * GIB, processes=(PROCESS,))
ENDING = Ending(account=ACCOUNT, process=PROCESS, is_dry_run=False)
LABELS = {"UUID": CARD, "namespace": "team", "pod": "a"}


def test_an_event_says_what_is_over_which_limit_and_what_is_done() -> None:
    """One sentence; the pod's owner sees it in kubectl describe."""
    assert words(ENDING) == (
        "the pod uses 12.00 GiB of the memory of GPU-0, more than its limit of 10.00 GiB: "
        "its largest process there, 4711 with 8.50 GiB, is being ended (SIGKILL)"
    )
    dry = words(Ending(account=ACCOUNT, process=PROCESS, is_dry_run=True))
    assert dry.endswith("would be ended, but memory.dryRun is set")


def test_the_event_is_the_pods() -> None:
    """In its namespace, and with its UID as the API server writes it, by which kubectl finds it."""
    made = event(ENDING, "node-1", at="2026-11-29T03:00:00Z", suffix="17a9")
    assert made["metadata"] == {"name": "a.17a9", "namespace": "team"}
    assert made["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "a", "uid": UID}
    assert made["message"] == words(ENDING)


@pytest.mark.parametrize(
    ("uid", "written"),
    [
        pytest.param(UID.replace("-", ""), UID, id="a UUID"),
        pytest.param(HASH, HASH, id="the hash of a static pod"),
        pytest.param("abc", "abc", id="another one"),
    ],
)
def test_a_uid_is_written_as_the_api_server_does(uid: str, written: str) -> None:
    """Cgroups and comparisons know it without hyphens."""
    assert api_uid(uid) == written


def test_what_is_known_is_a_sample() -> None:
    """Bytes that nobody knows, and limits that do not exist, are no series."""
    every = [ACCOUNT, Account(card=OTHER_CARD, pod=B, is_unknown=True)]
    assert samples(every, {(CARD, A): 2}, {(CARD, A), (OTHER_CARD, A)}) == {
        "memory_limit_bytes": [(LABELS, 10 * GIB)],
        "memory_limit_kept": [(LABELS, 1)],
        "memory_limit_unknown": [({"UUID": OTHER_CARD, "namespace": "team", "pod": "b"}, 1)],
        "memory_used_bytes": [(LABELS, 12 * GIB)],
        "memory_kills_total": [(LABELS, 2)],
    }


def test_kills_are_counted_by_card_and_pod() -> None:
    """Of endless pods the last ones are remembered."""
    kills: Kills = {}
    for number in range(MOST_KILLS + 5):
        kills = counted(kills, Ending(account=Account(card=CARD, pod=f"team/p{number}"), process=PROCESS,
                                      is_dry_run=False))  # fmt: skip
        kills = counted(kills, ENDING)
    assert kills[CARD, A] == MOST_KILLS + 5
    assert len(kills) == MOST_KILLS
    assert (CARD, "team/p0") not in kills
