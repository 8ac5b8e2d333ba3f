"""What nfd-worker is told of a profile: as NVIDIA's labels say it, and always what the worker reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import ProfileRefused
from device_agent.gpu_state.state import CardState
from device_agent.profiles.apply import apply
from device_agent.profiles.profile import Profile
from device_agent.profiles.report import report_of, sharing_of
from device_agent.profiles.strategy import Sorted
from device_resources.gpu_sharing import LONGEST, MOST_RESOURCES, GpuSharing, SharedResource, parse_sharing
from device_resources.nvidia import MigStrategy
from tests.unit.device_agent.nvidia.states import card
from tests.unit.device_agent.profiles.test_apply import A100, CARDS, FOUR, L4, MIXED_CARDS, PROFILES, profile_of

GPU, SMALL, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
WHOLE = SharedResource()
L4_BESIDE = (card(0, name=L4), card(1))
NAMED = "resources: {gpus: [{pattern: '*L4', name: l4}]}\n"


def shared(replicas: int, *, is_renamed: bool = False) -> SharedResource:
    """Make what the file has of a resource that is shared."""
    return SharedResource(replicas, "time-slicing", is_renamed)


@pytest.mark.parametrize(
    ("profile", "cards", "resources"),
    [
        pytest.param(profile_of(), FOUR, {GPU: WHOLE}, id="no sharing"),
        pytest.param(profile_of("{name: gpu, replicas: 4}"), FOUR, {GPU: shared(4)}, id="under its own name"),
        pytest.param(profile_of("{name: gpu, replicas: 4}", "renameByDefault: true, "), FOUR,
                     {GPU: shared(4, is_renamed=True)}, id="slice-4, by the name before"),
        pytest.param(profile_of("{name: gpu, replicas: 4, rename: quarter}"), FOUR, {GPU: shared(4, is_renamed=True)},
                     id="under a new name"),
        pytest.param(profile_of("{name: gpu, replicas: 4, rename: gpu}", "renameByDefault: true, "), FOUR,
                     {GPU: shared(4)}, id="a new name that is the old one"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: [0, 1]}", "renameByDefault: true, "), FOUR,
                     {GPU: shared(4, is_renamed=True)}, id="some of the devices count as all"),
        pytest.param(profile_of("{name: gpu, replicas: 2, devices: [1], rename: b}, "
                                "{name: gpu, replicas: 4, devices: [0], rename: a}"), FOUR,
                     {GPU: shared(2, is_renamed=True)}, id="the first entry of a resource counts"),
        pytest.param(profile_of("{name: gpu, replicas: 1}"), FOUR, {GPU: WHOLE}, id="one share is none"),
        pytest.param(profile_of("{name: l4, replicas: 3}", before=NAMED), L4_BESIDE,
                     {"nvidia.com/l4": shared(3), GPU: WHOLE}, id="one product"),
        pytest.param(profile_of("{name: l4, replicas: 3}", before=NAMED), FOUR, {GPU: WHOLE},
                     id="a product that is not there"),
        pytest.param(profile_of("{name: a.b/c, replicas: 4}"), FOUR, {GPU: WHOLE}, id="a resource of the node's files"),
        pytest.param(profile_of(before=f"resources: {{gpus: [{{pattern: '*L4', name: {'x' * 47}}}]}}\n"), L4_BESIDE,
                     {GPU: WHOLE}, id="a name that is too long for labels"),
        pytest.param(profile_of(before=f"resources: {{gpus: [{{pattern: '*L4', name: {'x' * 46}}}]}}\n"), L4_BESIDE,
                     {f"nvidia.com/{'x' * 46}": WHOLE, GPU: WHOLE}, id="the longest name"),
    ],
)  # fmt: skip
def test_each_resource_is_reported(
    profile: Profile, cards: tuple[CardState, ...], resources: dict[str, SharedResource]
) -> None:
    """By its name before sharing renamed it."""
    assert sharing_of(profile, Sorted(cards), MigStrategy.NONE) == GpuSharing("none", resources)


@pytest.mark.parametrize(
    ("profile", "default", "expected"),
    [
        pytest.param(profile_of(), MigStrategy.MIXED, GpuSharing("mixed", {GPU: WHOLE, SMALL: WHOLE, LARGE: WHOLE}),
                     id="of the configuration"),
        pytest.param(profile_of("{name: gpu, replicas: 2}"), MigStrategy.NONE, GpuSharing("none", {GPU: shared(2)}),
                     id="none"),
        pytest.param(A100, MigStrategy.NONE, GpuSharing("mixed", {GPU: shared(8), SMALL: shared(2), LARGE: shared(3)}),
                     id="of the profile"),
        pytest.param(profile_of(before="flags: {migStrategy: single}\n"), MigStrategy.NONE, GpuSharing("single", {}),
                     id="single, where nothing can be offered"),
    ],
)  # fmt: skip
def test_the_strategy_for_mig_is_the_one_in_force(profile: Profile, default: MigStrategy, expected: GpuSharing) -> None:
    """And resources are those that it makes."""
    assert sharing_of(profile, Sorted(MIXED_CARDS), default) == expected


@given(PROFILES, CARDS, st.sampled_from(MigStrategy))
def test_the_worker_reads_each_report(profile: Profile, cards: tuple[CardState, ...], default: MigStrategy) -> None:
    """By its own parser; what a card is offered as, or shared from, is in it."""
    try:
        offered = apply(profile, Sorted(cards), default)
    except ProfileRefused:
        return
    written = report_of(profile, Sorted(cards), default)
    read = parse_sharing(written)
    assert read == sharing_of(profile, Sorted(cards), default)
    assert read.mig_strategy == (profile.mig_strategy or default)
    sources = {name: {name, *(one.becomes for one in profile.shared if one.name == name)} for name in read.resources}
    assert {one.resource for one in offered} <= {name for names in sources.values() for name in names}
    assert bool(read.resources) is bool(offered)


def test_a_report_is_never_longer_than_the_worker_reads() -> None:
    """A node with more resources than the file may have reports the first ones."""
    names = [f"{'x' * 44}{number:02}" for number in range(MOST_RESOURCES)]
    patterns = ", ".join(f"{{pattern: p{number}, name: {name}}}" for number, name in enumerate(names))
    cards = tuple(card(number, name=f"p{number}") for number in range(MOST_RESOURCES))
    shares = ", ".join(f"{{name: {name}, replicas: 64}}" for name in names)
    written = report_of(
        profile_of(shares, before=f"resources: {{gpus: [{patterns}]}}\n"),
        Sorted((*cards, card(MOST_RESOURCES))),
        MigStrategy.SINGLE,
    )
    assert len(written) <= LONGEST
    assert set(parse_sharing(written).resources) == {f"nvidia.com/{name}" for name in names}
