"""Which process is ended, and when."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.gpu_state.use import ProcessUse
from device_agent.memory_limits.accounts import Account
from device_agent.memory_limits.watch import (
    HOLDERS_SECONDS,
    LONGEST_GAP,
    NOTHING,
    Ending,
    Sample,
    Watched,
    undone,
    watch,
)
from device_agent.usage.attribution import FRESH_SECONDS
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, OTHER_CARD, UIDS, A, B, process

SETTINGS = MemorySettings(mode=MemoryMode.WATCH, grace_seconds=10)
DRY = replace(SETTINGS, dry_run=True)
LIMIT = 10 * GIB

Told = tuple[float, str, int]
"""When, of which card, which process."""


def account(*processes: ProcessUse, pod: str = A, card: str = CARD, limit: int | None = LIMIT) -> Account:
    """Make an account of processes whose memory is known."""
    used = sum(one.memory or 0 for one in processes)
    uid = processes[0].uid if processes else ""
    return Account(card=card, pod=pod, uid=uid, limit=limit, used=used, processes=processes)


OVER, UNDER = account(process(10, 8), process(11, 4)), account(process(10, 8), process(11, 2))
UNKNOWN = Account(card=CARD, pod=A, limit=LIMIT)

Steps = Iterable[tuple[float, tuple[Account, ...] | None]]


def run(steps: Steps, settings: MemorySettings = SETTINGS, own: str = "") -> list[Told]:
    """Take samples one after another, each at its time; return what is to be done."""
    before, told = NOTHING, []
    for at, accounts in steps:
        before, endings = watch(before, Sample(at=at, accounts=accounts, held_at=at - 1), at + 0.5, settings, own)
        told += [(at, one.account.card, one.process.pid) for one in endings]
    return told


def every(seconds: float, last: float, *accounts: Account) -> list[tuple[float, tuple[Account, ...] | None]]:
    """Make equal samples from 0 on."""
    return [(number * seconds, accounts) for number in range(int(last / seconds) + 1)]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param(every(3, 11, OVER), [], id="not before the grace"),
        pytest.param(every(3, 12, OVER), [(12, CARD, 10)], id="then the largest process"),
        pytest.param(every(3, 23, OVER), [(12, CARD, 10)], id="once for each grace"),
        pytest.param(every(3, 24, OVER), [(12, CARD, 10), (24, CARD, 10)], id="and after it again"),
        pytest.param(every(3, 60, UNDER), [], id="never a pod within its limit"),
        pytest.param(every(3, 60, account(process(10, 10))), [], id="all of the limit is within it"),
        pytest.param(every(3, 60, account(process(10, 39), limit=None)), [], id="no limit"),
        pytest.param([(0, (OVER,)), (3, (UNDER,)), (6, (OVER,)), (12, (OVER,)), (15, (OVER,))], [],
                     id="within it once, and the grace begins anew"),
        pytest.param([(0, (OVER,)), (3, ()), (6, (OVER,)), (12, (OVER,)), (15, (OVER,))], [],
                     id="without the device once"),
        pytest.param([(0, (OVER,)), (3, None), (6, (OVER,)), (12, (OVER,)), (15, (OVER,))], [],
                     id="podresources was away once"),
        pytest.param([(0, (OVER,)), (3, (UNKNOWN,)), (6, (UNKNOWN,)), (12, (OVER,))], [(12, CARD, 10)],
                     id="samples that do not know interrupt nothing"),
        pytest.param([(0, (OVER,)), (3, (OVER,)), (12, (UNKNOWN,))], [], id="and decide nothing"),
        pytest.param([(0, (OVER,)), (LONGEST_GAP, (OVER,))], [(LONGEST_GAP, CARD, 10)], id="a gap"),
        pytest.param([(0, (OVER,)), (LONGEST_GAP + 1, (OVER,))], [], id="nobody knows what was in so long a gap"),
        pytest.param([(0, (OVER,)), (12, (account(process(20, 12, uid="c" * 32)),))], [],
                     id="a pod that was made anew under the same name"),
        pytest.param([(0, (OVER,)), (12, (account(process(30, 12)),))], [(12, CARD, 30)], id="another process of it"),
        pytest.param([(12, (OVER,)), (3, (OVER,)), (0, (OVER,))], [], id="times that run backwards"),
    ],
)  # fmt: skip
def test_a_process_is_ended_after_the_grace(steps: Steps, told: list[Told]) -> None:
    """The pod was over its limit in every sample that knew, for as long as the grace is."""
    assert run(steps) == told


@pytest.mark.parametrize(
    ("processes", "own", "pids"),
    [
        pytest.param([process(12, 4), process(10, 9), process(11, 5)], "", [10], id="the largest"),
        pytest.param([process(12, 9), process(11, 9), process(13, 9)], "", [11], id="of equal ones the first PID"),
        pytest.param([process(10, 12), process(11, None)], "", [10], id="one whose memory is known"),
        pytest.param([process(1, 30), process(11, 1)], "", [11], id="never process 1"),
        pytest.param([process(1, 30)], "", [], id="nor if it is the only one"),
        pytest.param([process(11, 30)], UIDS[A], [], id="never a process of the agent's own pod"),
        pytest.param([process(11, 20), process(12, 30, uid="c" * 32)], "", [11], id="never one of another UID"),
    ],
)
def test_which_process(processes: list[ProcessUse], own: str, pids: list[int]) -> None:
    """The one whose end frees most; and some are never ended."""
    assert [pid for _, _, pid in run(every(3, 12, account(*processes)), own=own)] == pids


def test_a_pod_loses_one_process_for_each_grace_on_all_of_its_cards() -> None:
    """A process often has memory of several cards: its end may be enough for all of them."""
    both = (account(process(10, 12)), account(process(11, 12), card=OTHER_CARD), account(process(20, 12, B), pod=B))
    assert run(every(3, 24, *both)) == [(12, CARD, 10), (12, CARD, 20), (24, CARD, 10), (24, CARD, 20)]


def test_a_dry_run_reports_each_excess_once() -> None:
    """It is the same decision; after the pod was within its limit it may be reported again."""
    steps = [*every(3, 60, OVER), (63, (UNDER,)), (66, (OVER,)), (78, (OVER,)), (81, (OVER,))]
    assert run(steps, DRY) == [(12, CARD, 10), (78, CARD, 10)]
    _, (ending,) = watch(_over_since(0), Sample(at=12, accounts=(OVER,), held_at=12), 12, DRY)
    assert ending == Ending(account=OVER, process=process(10, 8), is_dry_run=True)


def _over_since(at: float) -> Watched:
    return watch(NOTHING, Sample(at=at, accounts=(OVER,), held_at=at), at, SETTINGS)[0]


@pytest.mark.parametrize(
    ("sample", "now"),
    [
        pytest.param(None, 12.0, id="missing"),
        pytest.param(Sample(at=12, accounts=(OVER,), held_at=12), 12.1 + FRESH_SECONDS, id="old"),
        pytest.param(
            Sample(at=12, accounts=(UNDER,), held_at=12), 12.1 + FRESH_SECONDS, id="old, and within the limit"
        ),
        pytest.param(Sample(at=0, accounts=(UNDER,), held_at=0), 1.0, id="taken before"),
    ],
)
def test_a_sample_that_says_nothing_new_changes_nothing(sample: Sample | None, now: float) -> None:
    """It interrupts nothing and decides nothing: the next good one does."""
    before = _over_since(0)
    assert watch(before, sample, now, SETTINGS) == (before, ())
    assert len(watch(before, Sample(at=15, accounts=(OVER,), held_at=15), 15, SETTINGS)[1]) == 1


def test_without_podresources_an_old_sample_is_forgotten_as_well() -> None:
    """Nobody can say who has a card, however old the rest is."""
    assert watch(_over_since(0), Sample(at=0, accounts=None, held_at=0), 99, SETTINGS) == (NOTHING, ())


def test_it_is_decided_again_from_what_is_remembered() -> None:
    """The same sample once more, as after an action that failed, decides nothing."""
    after, endings = watch(_over_since(0), Sample(at=12, accounts=(OVER,), held_at=12), 12, SETTINGS)
    assert len(endings) == 1
    assert watch(after, Sample(at=12, accounts=(OVER,), held_at=12), 12, SETTINGS) == (after, ())


def test_old_holders_decide_nothing() -> None:
    """The next ones do. A pod that is within its limit by old ones is so, and its grace begins anew."""
    old = 11.9 - HOLDERS_SECONDS
    after, endings = watch(_over_since(0), Sample(at=12, accounts=(OVER,), held_at=old), 12, SETTINGS)
    assert endings == ()
    assert len(watch(after, Sample(at=15, accounts=(OVER,), held_at=15), 15, SETTINGS)[1]) == 1
    within, _ = watch(_over_since(0), Sample(at=12, accounts=(UNDER,), held_at=old), 12, SETTINGS)
    assert watch(within, Sample(at=15, accounts=(OVER,), held_at=15), 15, SETTINGS)[1] == ()


def test_nobody_is_ended_by_holders_of_before_the_excess() -> None:
    """By then the name may have been another pod's, which had less of the card."""
    short, before, seen = replace(SETTINGS, grace_seconds=1), NOTHING, []
    for at, held_at in ((0.0, -1.0), (3.0, -1.0), (6.0, 5.0), (9.0, 5.0), (12.0, 10.0)):
        before, endings = watch(before, Sample(at=at, accounts=(OVER,), held_at=held_at), at, short)
        seen += [at for _ in endings]
    assert seen == [6.0, 12.0]


def test_an_ending_that_did_not_come_about_is_decided_again() -> None:
    """By the next sample: the grace of its pod has not begun anew, that of another one has."""
    both = (OVER, account(process(20, 12, B), pod=B))
    before = watch(NOTHING, Sample(at=0, accounts=both, held_at=0), 0, SETTINGS)[0]
    after, endings = watch(before, Sample(at=12, accounts=both, held_at=12), 12, SETTINGS)
    assert len(endings) == 2
    again = Sample(at=15, accounts=both, held_at=15)
    assert [one.account.pod for one in watch(undone(after, before, A), again, 15, SETTINGS)[1]] == [A]
    assert undone(NOTHING, before, A) == NOTHING


_LIVES = ((A, CARD), (A, OTHER_CARD), (B, CARD))
"""Pods and their cards."""
_STATES = st.sampled_from([*["over"] * 8, "just over", "within", "whole", "unknown", "gone"])


def _in(state: str, pod: str, card: str) -> Account:
    """Make the account of a pod; its largest process is the node's first one, which no pod can have."""
    gib = {"within": 2.0, "just over": 3 + 1 / GIB}.get(state, 5.0)
    processes = [process(1, 7, pod), process(11, gib, pod), process(12, 0.0, pod), process(13, None, pod)]
    made = account(*processes, pod=pod, card=card, limit=None if state == "whole" else LIMIT)
    return replace(made, uid="", used=None, processes=()) if state == "unknown" else made


_ACCOUNTS = st.tuples(*[_STATES] * len(_LIVES)).map(
    lambda states: tuple(_in(state, *life) for state, life in zip(states, _LIVES, strict=True) if state != "gone")
)
_SAMPLES = st.sampled_from([*range(9), "missing", "away"]).flatmap(
    lambda word: {"missing": st.none(), "away": st.just(Sample(at=0, accounts=None, held_at=0))}.get(
        str(word), st.builds(Sample, at=st.just(0.0), accounts=_ACCOUNTS, held_at=st.just(0.0))
    )
)
_AGES = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 6])
_HELD_AGES = st.sampled_from([0, 1, 1, 2, 3, 5, 6, 8])
_STREAMS = st.lists(st.tuples(st.integers(1, 5), _AGES, _HELD_AGES, _SAMPLES), min_size=15, max_size=25)


@given(_STREAMS)
def test_nobody_is_ended_who_is_not_over_the_limit_for_long_enough(
    stream: list[tuple[int, int, int, Sample | None]],
) -> None:
    """Whatever comes: a process of a pod that has the card, over its limit now and for a grace, one in each."""
    before, now = NOTHING, 0.0
    last: dict[str, float] = {}
    over_since: dict[tuple[str, str], float] = {}
    for step, age, held_age, sample in stream:
        now += step
        if sample is not None:
            sample = replace(sample, at=now - age, held_at=now - held_age)  # noqa: PLW2901 - the times of this step
        is_news = sample is not None and sample.at > before.at and age <= FRESH_SECONDS
        before, endings = watch(before, sample, now, SETTINGS)
        if sample is not None and sample.accounts is None:
            over_since = {}
        elif sample is not None and is_news:
            known = {(one.card, one.pod): one for one in sample.accounts or ()}
            over_since = {
                key: over_since.get(key, sample.at)
                for key, one in known.items()
                if (one.used is None and key in over_since)
                or (one.used is not None and one.limit is not None and one.used > one.limit)
            }
        for ending in endings:
            assert sample is not None
            mine, pod = ending.account, ending.account.pod
            assert is_news
            assert mine in (sample.accounts or ())
            assert ending.process in mine.processes
            assert mine.limit is not None
            assert mine.used is not None
            assert mine.used > mine.limit
            assert ending.process.pid > 1
            assert sample.at - over_since[mine.card, pod] >= SETTINGS.grace_seconds
            assert held_age <= HOLDERS_SECONDS
            assert sample.held_at >= over_since[mine.card, pod]
            assert sample.at - last.get(pod, -1000.0) >= SETTINGS.grace_seconds
            last[pod] = sample.at
