"""What is in use follows from what the kubelet shows and recorded, and from what was given; nothing is guessed."""

import pytest

from device_agent.allocations.given import Allocation, Given
from device_agent.allocations.recent import Recent, Start, recent_of, started, still_recent
from device_agent.profiles.transition import Held
from device_agent.users.in_use import Seen, held_in, in_use

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
A, B, SHARE = (GPU, "GPU-0"), (GPU, "GPU-1"), (SHARED, "GPU-2::1")
GIVEN: Given = {SHARE: Allocation(identity=("x",), shares=4), A: Allocation(identity=("y",), shares=1, at=100.0)}


def held(*keys: tuple[str, str], shares: int = 1) -> frozenset[Held]:
    """Make what is in use."""
    return frozenset(Held(resource=resource, id=name, shares=shares) for resource, name in keys)


@pytest.mark.parametrize(
    ("seen", "recent", "expected"),
    [
        pytest.param(Seen(asked_at=200, shown={A}, recorded=set()), {}, held(A), id="shown by podresources"),
        pytest.param(Seen(asked_at=200, shown=set(), recorded={A}), {}, held(A), id="an init container's: recorded"),
        pytest.param(Seen(asked_at=159, shown=set(), recorded=set()), {A: Start(100, 1)}, held(A), id="given lately"),
        pytest.param(Seen(asked_at=160, shown=set(), recorded=set()), {A: Start(100, 1)}, held(), id="given long ago"),
        pytest.param(Seen(asked_at=90, shown=set(), recorded=set()), {A: Start(100, 1)}, held(A), id="given since"),
        pytest.param(
            Seen(asked_at=200, shown={SHARE}, recorded=set()), {}, held(SHARE, shares=4), id="a share of four"
        ),
        pytest.param(
            Seen(asked_at=200, shown={SHARE}, recorded=set()), {SHARE: Start(199, 8)}, held(SHARE, shares=8),
            id="a share that is being given of eight",
        ),
        pytest.param(Seen(asked_at=200, shown={B}, recorded=set()), {}, held(B, shares=0), id="not given here"),
        pytest.param(Seen(asked_at=200, shown=set(), recorded=set()), {}, held(), id="nothing"),
    ],
)  # fmt: skip
def test_each_source_alone_is_enough(seen: Seen, recent: Recent, expected: frozenset[Held]) -> None:
    """With the number of shares that the agent remembers."""
    assert in_use(seen, GIVEN, recent) == expected


@pytest.mark.parametrize(
    ("seen", "given"),
    [
        pytest.param(Seen(asked_at=200, recorded={A}), GIVEN, id="no podresources"),
        pytest.param(Seen(asked_at=200, shown={A}), GIVEN, id="no checkpoint"),
        pytest.param(Seen(asked_at=200, shown={A}, recorded={A}), None, id="the agent's own file is not read yet"),
    ],
)
def test_where_a_source_is_missing_nothing_is_known(seen: Seen, given: Given | None) -> None:
    """Changes wait."""
    assert in_use(seen, given, {}) is None


def test_what_podresources_has_shown_is_the_kubelets_to_say() -> None:
    """From then on the device is free as soon as it is shown no more."""
    recent = started({}, GPU, {"GPU-0": 1, "GPU-1": 1}, now=100.0)
    assert still_recent(recent, {A}, asked_at=101.0) == {B: Start(100.0, 1)}


def test_an_answer_to_an_earlier_question_is_about_the_holder_before() -> None:
    """The kubelet freed the device and gave it again after it was asked."""
    recent = started({}, GPU, {"GPU-0": 1}, now=100.0)
    assert still_recent(recent, {A}, asked_at=100.0) == recent
    assert still_recent(recent, {A}, asked_at=99.0) == recent


def test_what_was_given_long_ago_is_forgotten() -> None:
    """Also where podresources never shows it, as those of init containers."""
    recent = started({}, GPU, {"GPU-0": 1}, now=100.0)
    assert still_recent(recent, set(), asked_at=159.9) == recent
    assert still_recent(recent, set(), asked_at=160.0) == {}


def test_what_the_file_has_of_this_boot_is_recent_again() -> None:
    """After a restart of the agent; of earlier boots it has no times."""
    assert recent_of(GIVEN) == {A: Start(100.0, 1)}


@pytest.mark.parametrize(
    ("past", "now"),
    [
        pytest.param((GPU, "GPU-0", 1), (SHARED, "GPU-0::1", 4), id="whole, and then a share"),
        pytest.param((SHARED, "GPU-0::1", 4), (GPU, "GPU-0", 1), id="a share, and then whole"),
        pytest.param((SHARED, "GPU-0::5", 8), (SHARED, "GPU-0::1", 4), id="of eight, and then of four"),
    ],
)
def test_what_was_given_before_its_unit_was_given_otherwise_has_ended(
    past: tuple[str, str, int], now: tuple[str, str, int]
) -> None:
    """An agent that starts finds both in its file, given a moment ago; one that is being given anew counts."""
    given: Given = {
        (resource, name): Allocation(identity=("x",), shares=shares, at=100.0 + after)
        for after, (resource, name, shares) in enumerate((past, now))
    }
    seen = Seen(asked_at=110, shown=set(), recorded=set())
    assert in_use(seen, given, recent_of(given)) == held(now[:2], shares=now[2])
    again = started(recent_of(given), past[0], {past[1]: past[2]}, now=105.0)
    assert in_use(seen, given, again) == held(now[:2], shares=now[2]) | held(past[:2], shares=past[2])


def test_all_that_was_given_is_listed_in_its_order() -> None:
    """The newest last, as an agent that starts needs it."""
    assert held_in(GIVEN) == [
        Held(resource=SHARED, id="GPU-2::1", shares=4), Held(resource=GPU, id="GPU-0", shares=1),
    ]  # fmt: skip
