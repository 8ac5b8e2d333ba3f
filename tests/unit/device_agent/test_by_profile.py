"""What a profile makes of the units of the node's files."""

import pytest

from device_agent.devices.model import Unit
from device_agent.errors import ProfileRefused
from device_agent.profiles.offered import Offered
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.profile import Profile
from device_agent.profiles.transition import Listed
from device_agent.sources.files.by_profile import Resources, as_described, in_another_way, offers, with_common_units

CARD, PORT = "example.com/card", "example.com/port"
NODE: Resources = {CARD: [Unit(id="c0"), Unit(id="c1")], PORT: [Unit(id="p0", shares=3)]}


def profile_of(entries: str, further: str = "") -> Profile:
    """Write a profile and read it."""
    return parse_profile(f"version: v1\nsharing: {{timeSlicing: {{{further}resources: [{entries}]}}}}\n", "k")


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param(Profile(), [(CARD, "c0", 1), (CARD, "c1", 1), (PORT, "p0", 3)], id="nothing is shared"),
        pytest.param(profile_of(f"{{name: {CARD}, replicas: 2}}"), [(CARD, "c0", 2), (CARD, "c1", 2), (PORT, "p0", 3)],
                     id="under its own name"),
        pytest.param(profile_of(f"{{name: {CARD}, replicas: 2}}", "renameByDefault: true, "),
                     [(f"{CARD}.shared", "c0", 2), (f"{CARD}.shared", "c1", 2), (PORT, "p0", 3)], id="by default"),
        pytest.param(profile_of(f"{{name: {CARD}, replicas: 2, rename: example.com/x}}"),
                     [("example.com/x", "c0", 2), ("example.com/x", "c1", 2), (PORT, "p0", 3)], id="under a new name"),
        pytest.param(profile_of(f"{{name: {PORT}, replicas: 2}}"), [(CARD, "c0", 1), (CARD, "c1", 1), (PORT, "p0", 2)],
                     id="the profile counts more than the configuration"),
        pytest.param(profile_of("{name: example.com/other, replicas: 2}, {name: gpu, replicas: 9}"),
                     [(CARD, "c0", 1), (CARD, "c1", 1), (PORT, "p0", 3)], id="what is not there, and GPUs"),
    ],
)  # fmt: skip
def test_each_unit_is_offered_once(profile: Profile, expected: list[tuple[str, str, int]]) -> None:
    """Shared by the profile, or as it is described."""
    offered = offers(profile, NODE, NODE)
    assert offered == tuple(Offered(resource=name, unit=unit, shares=shares) for name, unit, shares in expected)
    some = offers(profile, NODE, [PORT])
    assert some == offered[2:]


@pytest.mark.parametrize(
    ("entries", "node", "message"),
    [
        pytest.param(f"{{name: {CARD}, replicas: 2, rename: {PORT}}}", NODE, "makes two resources 'example.com/port'",
                     id="a name that another one has"),
        pytest.param(f"{{name: {CARD}, replicas: 2}}", {**NODE, "example.com/same": [Unit(id="c1")]},
                     "'example.com/card' has a device that another resource has too", id="a device of two resources"),
        pytest.param(f"{{name: {CARD}, replicas: 1000}}", {CARD: [Unit(id=f"c{number}") for number in range(5)]},
                     "'example.com/card' would have 5000 shares: at most 4096", id="more than the kubelet reads"),
    ],
)  # fmt: skip
def test_a_profile_that_does_not_fit_is_refused(entries: str, node: Resources, message: str) -> None:
    """The message names the resource."""
    with pytest.raises(ProfileRefused, match=message):
        offers(profile_of(entries), node, node)


def test_which_resources_have_a_unit_in_another_way() -> None:
    """Under another name, with another number of shares, or waiting."""
    listed = as_described(NODE)
    assert in_another_way(listed, NODE) == set()
    for other in (
        {f"{CARD}.shared": (Listed(id="c0", unit="c0", shares=1),)},
        {CARD: (Listed(id="c0::0", unit="c0", shares=2),)},
        {CARD: (Listed(id="c0", unit="c0", shares=1, why="it waits"),)},
    ):
        assert in_another_way({**listed, **other}, NODE) == {CARD}
    assert in_another_way({CARD: (Listed(id="x", unit="x", shares=7),)}, NODE) == set()


def test_of_a_unit_of_several_resources_each_one_waits() -> None:
    """Until it is listed in one of the ways in which it is described; it does not matter in which."""
    both: Resources = {**NODE, "example.com/same": [Unit(id="c0")]}
    share = {f"{CARD}.shared": (Listed(id="c0::0", unit="c0", shares=4),)}
    assert in_another_way(share, both) == {CARD, "example.com/same"}
    assert in_another_way(as_described(both), both) == set()


def test_resources_with_the_same_files_are_named() -> None:
    """Whose a device is that a container has cannot be told there."""
    assert with_common_units(NODE) == set()
    assert with_common_units({**NODE, "example.com/same": [Unit(id="p0")]}) == {PORT, "example.com/same"}
