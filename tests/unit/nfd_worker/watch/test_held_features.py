"""Features that are missing for a moment are there for the rules; values, and what expires, change at once."""

from collections.abc import Mapping

import pytest

from feature_rules.features import Features, FileFeatures
from nfd_worker.sources.local import of_files
from nfd_worker.watch.held_features import HeldFeatures
from nfd_worker.watch.schedule import NEVER

T0, GRACE, CLOCK = 1000.0, 60.0, 1_800_000_000.0
GPU = {"class": "0302", "vendor": "10de", "device": "2330"}
NIC = {"class": "0200", "vendor": "15b3", "device": "1017"}
ETH0 = {"name": "eth0", "operstate": "up", "mtu": "1500", "speed": "1000"}
ALL = Features(
    flags={"kernel.loadedmodule": frozenset({"a", "b"})},
    attributes={"kernel.version": {"full": "6.1", "major": "6"}},
    instances={"pci.device": (GPU, NIC), "network.device": (ETH0,)},
)


class World:
    """One source, played against a clock."""

    def __init__(self, *founds: Features) -> None:
        self.held = HeldFeatures()
        for found in founds:
            self.at(-100.0, found)

    def at(self, seconds: float, found: Features, *, grace: float = GRACE) -> Features:
        """Give what the rules see of a cycle so long after T0."""
        self.held.begin(T0 + seconds, grace, CLOCK + seconds)
        return self.held.hold("it", found)


def files(expiry: Mapping[str, float] | None = None, expired: frozenset[str] = frozenset(), **said: str) -> Features:
    """Give the features of files; ``f_x='1'``: the file f says x=1."""
    contents: dict[str, dict[str, str]] = {}
    for name, value in said.items():
        contents.setdefault(f"features.d/{name.partition('_')[0]}", {})[name.partition("_")[2]] = value
    return of_files({file: FileFeatures(each, each, expiry or {}, expired) for file, each in contents.items()})


@pytest.mark.parametrize(
    "less",
    [
        pytest.param(ALL._replace(flags={"kernel.loadedmodule": frozenset({"a"})}), id="flag"),
        pytest.param(ALL._replace(flags={}), id="feature of flags"),
        pytest.param(ALL._replace(attributes={"kernel.version": {"full": "6.1"}}), id="attribute"),
        pytest.param(ALL._replace(attributes={}), id="feature of attributes"),
        pytest.param(ALL._replace(instances={**ALL.instances, "pci.device": (GPU,)}), id="instance"),
        pytest.param(ALL._replace(instances={}), id="feature of instances"),
        pytest.param(Features(), id="everything"),
    ],
)
def test_what_is_missing_is_held_for_the_grace(less: Features) -> None:
    """A device that is reset and a driver that is reloaded come back within it."""
    world = World(ALL)
    assert same(world.at(0, less), ALL)
    assert world.held.due == T0 + GRACE
    assert same(world.at(59, less), ALL)
    assert not world.held.has_let_go
    assert world.at(60, less) == less
    assert world.held.has_let_go
    assert world.held.due == NEVER
    assert world.at(61, less) == less
    assert not world.held.has_let_go


def same(one: Features, other: Features) -> bool:
    """Compare, whatever the order of instances."""
    return (one.flags, one.attributes) == (other.flags, other.attributes) and all(
        sorted(map(repr, one.instances.get(name, ()))) == sorted(map(repr, other.instances.get(name, ())))
        for name in one.instances.keys() | other.instances.keys()
    )


def test_what_comes_back_was_never_away_and_has_a_new_grace() -> None:
    """Within the time, and with another value of an attribute."""
    world = World(ALL)
    world.at(0, Features())
    changed = ALL._replace(attributes={"kernel.version": {"full": "6.2", "major": "6"}})
    assert world.at(30, changed) == changed
    assert world.held.due == NEVER
    world.at(50, Features())
    assert world.held.due == T0 + 50 + GRACE


def test_a_changed_value_is_no_removal() -> None:
    """Of an attribute, and of an instance, which is known by its name or by what else it has."""
    world = World(ALL)
    changed = ALL._replace(
        attributes={"kernel.version": {"full": "6.2", "major": "6"}},
        instances={"pci.device": ({**GPU, "device": "2331"}, NIC), "network.device": ({**ETH0, "operstate": "down"},)},
    )
    assert world.at(0, changed) == changed
    assert world.held.due == NEVER


def test_another_device_does_not_stand_for_one_that_is_gone() -> None:
    """A new card of another kind, or an interface of another name, is an addition."""
    world = World(ALL)
    other = {"pci.device": (GPU, {**NIC, "vendor": "8086", "device": "1"}), "network.device": ({**ETH0, "name": "e1"},)}
    found = world.at(0, ALL._replace(instances=other))
    assert len(found.instances["pci.device"]) == 3
    assert [one["name"] for one in found.instances["network.device"]] == ["e1", "eth0"]


def test_one_of_two_equal_devices_is_missed() -> None:
    """They are counted, since nothing tells them apart."""
    world = World(Features(instances={"pci.device": (GPU, GPU)}))
    assert world.at(0, Features(instances={"pci.device": (GPU,)})).instances["pci.device"] == (GPU, GPU)
    assert world.at(60, Features(instances={"pci.device": (GPU,)})).instances["pci.device"] == (GPU,)


def test_without_a_grace_nothing_is_held() -> None:
    """What is gone is gone."""
    world = World(ALL)
    assert world.at(0, Features(), grace=0.0) == Features()
    assert world.held.due == NEVER


def test_a_source_that_fails_meanwhile_does_not_keep_the_worker_awake() -> None:
    """What is over goes with its next good read, and no cycle is asked for until then."""
    world = World(ALL)
    world.at(0, Features())
    world.held.begin(T0 + 61, GRACE, CLOCK)
    assert world.held.due == NEVER
    assert world.at(70, Features()) == Features()


def test_a_file_that_is_gone_is_held_with_what_it_says() -> None:
    """Features for the rules, labels, and the file for the record; then all of it goes."""
    both = files(f_a="1", f_b="2", g_c="3")
    world = World(both)
    assert world.at(0, files(g_c="3")) == both
    assert world.at(30, both) == both
    assert world.at(40, files(g_c="3")) == both
    assert world.at(100, files(g_c="3")) == files(g_c="3")
    assert world.held.has_let_go


def test_a_file_that_is_half_written_is_held_line_by_line() -> None:
    """What it says already counts, at once."""
    world = World(files(f_a="1", f_b="2"))
    assert world.at(0, files(f_a="9")).attributes["local.feature"] == {"a": "9", "b": "2"}
    assert world.at(60, files(f_a="9")) == files(f_a="9")


def test_a_file_that_is_renamed_leaves_nothing_behind() -> None:
    """A program writes f.tmp and renames it: its new values count, and not those of the temporary name."""
    world = World(files(f_a="1"))
    world.at(0, files(f_a="1", ftmp_a="2"))
    assert world.at(1, files(f_a="2")) == files(f_a="2")
    assert world.held.due == NEVER


@pytest.mark.parametrize(
    ("expiry", "expired", "what_is_left"),
    [
        pytest.param({"a": CLOCK - 1}, frozenset(), {"z": "1"}, id="of a file that is gone"),
        pytest.param({}, frozenset({"a"}), {"z": "1"}, id="the file has been given a time that is over"),
        pytest.param({"a": CLOCK + 1}, frozenset(), {"z": "1", "a": "1"}, id="not yet"),
    ],
)
def test_what_expires_goes_at_once(
    expiry: dict[str, float], expired: frozenset[str], what_is_left: dict[str, str]
) -> None:
    """Its writer has said when it is over."""
    world = World(files(expiry, f_a="1", f_z="1"))
    found = world.at(0, files(expired=expired, f_z="1") if expired else files(f_z="1"))
    assert found.attributes["local.feature"] == what_is_left
    assert world.held.has_let_go is ("a" not in what_is_left)


def test_what_is_held_expires_at_its_time() -> None:
    """Though the file that said so is gone."""
    world = World(files({"a": CLOCK + 10}, f_a="1"))
    assert world.at(0, files(g_z="1")).attributes["local.label"] == {"a": "1", "z": "1"}
    assert world.at(11, files(g_z="1")).attributes["local.label"] == {"z": "1"}
