"""What a Node remembers of a driver: what is taken in, what is kept, and that a forged value is worth nothing."""

import json
from typing import Any

import pytest

from driver_builder.objects import loaded
from driver_builder.objects.loaded import UNREADABLE, Load, Loaded
from kube_api import names

BOOT, NEXT_BOOT = "11111111-2222", "33333333-4444"


def load(*modules: str, target: str = "aaaa1111", boot_id: str = BOOT, **changes: Any) -> Load:
    """Make a load of modules, given as ``name:identity``."""
    pairs = tuple((name, identity) for name, identity in (module.split(":") for module in modules))
    return Load(target=target, kernel="6.1.0", boot_id=boot_id, modules=pairs, **changes)


def test_what_was_written_is_read() -> None:
    """All of it, in less than the limit."""
    full = Loaded(
        loads=(
            load("a:1", "b:2", firmware=True, var_firmware=True, nvidia=True, fingerprint="v2:0123456789abcdef"),
            load(target="bbbb2222", boot_id=NEXT_BOOT, blacklist=True),
        ),
        outside_since=5,
        unload_since=7,
        held="refcnt 2",
        given_up="refcnt 1",
    )
    assert loaded.parse(loaded.render(full)) == full


def test_no_annotation_is_no_memory() -> None:
    """A node that an older version loaded has none."""
    assert loaded.parse(None) is None


GOOD = {"target": "aaaa1111", "kernel": "6.1.0", "bootID": BOOT, "modules": ["a:1"]}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("nonsense", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param('{"loads": 5}', id="not a list"),
        pytest.param(json.dumps({"loads": [{**GOOD, "target": "../../x"}]}), id="a target that is a path"),
        pytest.param(json.dumps({"loads": [{**GOOD, "kernel": "6.1/../.."}]}), id="a kernel that is a path"),
        pytest.param(json.dumps({"loads": [{**GOOD, "kernel": ".."}]}), id="a kernel of dots"),
        pytest.param(json.dumps({"loads": [{**GOOD, "modules": ["a b:1"]}]}), id="a name of two words"),
        pytest.param(json.dumps({"loads": [{**GOOD, "modules": ["a"]}]}), id="no identity"),
        pytest.param(json.dumps({"loads": [{**GOOD, "bootID": "\n"}]}), id="a boot that is no word"),
        pytest.param(json.dumps({"loads": [{**GOOD, "fingerprint": "a b"}]}), id="a fingerprint of two words"),
        pytest.param(json.dumps({"loads": [GOOD] * 9}), id="too many loads"),
        pytest.param(json.dumps({"loads": [{**GOOD, "modules": ["a:1"] * 129}]}), id="too many modules"),
        pytest.param(json.dumps({"loads": [], "x": "x" * 4096}), id="too long"),
        pytest.param(json.dumps({"unloadSince": -1}), id="a time before all times"),
        pytest.param(json.dumps({"unloadSince": 1 << 40}), id="a time after all times"),
        pytest.param(json.dumps({"unloadSince": True}), id="no time"),
        pytest.param("[" * 3000, id="nested"),
    ],
)
def test_a_value_that_is_not_ours_names_nothing(text: str) -> None:
    """A kubelet may write its Node's annotations: nothing of such a value is used, and that is said."""
    assert loaded.parse(text) == Loaded(given_up=UNREADABLE)


def test_more_than_fits_is_left_out_from_the_oldest() -> None:
    """The value stays below its limit, and readable."""
    many = [f"module_with_a_long_name_{number:03}:{'A' * 24}" for number in range(120)]
    full = Loaded(loads=(load(*many), load("old:1", target="bbbb2222")))
    text = loaded.render(full)
    assert len(text) <= loaded.MAX_BYTES
    read = loaded.parse(text)
    assert read is not None
    (kept,) = read.loads
    assert kept.modules == full.loads[0].modules[-len(kept.modules) :]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(["a:1"], ["a:2"], ["a:2"], id="another build"),
        pytest.param(["a:1", "b:1"], ["a:2"], ["a:2", "b:1"], id="what stood on it is left"),
        pytest.param(["a:1", "b:1"], ["b:2"], ["a:1", "b:2"], id="what it stood on is left"),
        pytest.param(["a-x:1"], ["a_x:2"], ["a_x:2"], id="a dash is an underscore"),
        pytest.param([], ["a:1"], ["a:1"], id="nothing before"),
    ],
)
def test_modules_of_the_same_boot_are_kept_in_order(before: list[str], now: list[str], expected: list[str]) -> None:
    """A module that the new image does not have any more is live still, and is unloaded with the others."""
    known = Loaded(loads=(load(*before),)).with_load(load(*now))
    assert known.loads == (load(*expected),)


def test_of_a_load_that_failed_both_builds_are_kept() -> None:
    """Nobody knows whose is live: a removal takes the one that it finds."""
    known = Loaded(loads=(load("a:1"),)).with_load(load("a:2"), is_proven=False)
    assert set(known.loads[0].modules) == {("a", "1"), ("a", "2")}
    assert known.with_load(load("a:2")).loads == (load("a:2"),)


def test_files_of_another_target_outlive_its_boot() -> None:
    """After a kernel change no old module is left, but firmware and blacklist are."""
    files = load("a:1", target="bbbb2222", blacklist=True)
    known = Loaded(loads=(files, load("c:1", target="cccc3333"), load("d:1", target="dddd4444", var_firmware=True)))
    now = known.with_load(load("a:2", boot_id=NEXT_BOOT))
    assert now.loads == (
        load("a:2", boot_id=NEXT_BOOT),
        load(target="bbbb2222", blacklist=True),
        load(target="dddd4444", var_firmware=True),
    )


@pytest.mark.parametrize("place", ["firmware", "var_firmware"])
def test_firmware_in_a_place_of_before_is_still_known(place: str) -> None:
    """A pod that has it elsewhere by now removes it, but one that is killed before may not."""
    there: dict[str, Any] = {place: True}
    known = Loaded(loads=(load("a:1", **there),)).with_load(load("a:1"))
    assert known.loads == (load("a:1", **there),)


def test_a_boot_ends_what_was_given_up() -> None:
    """The modules are gone with the boot; what is left begins anew."""
    known = Loaded(loads=(load("a:1", firmware=True),), unload_since=5, held="x", given_up="in use")
    assert known.on_boot(BOOT) == known.on_boot(None) == known
    assert known.on_boot(NEXT_BOOT) == Loaded(loads=(load(firmware=True),))


def test_what_held_a_load_goes_with_it() -> None:
    """The next one was not tried yet: nobody knows what is in its way."""
    left = load("c:1", target="cccc3333")
    known = Loaded(loads=(load("a:1"), left), unload_since=5, held="a is in use by x")
    assert known.without(load("a:1").target) == Loaded(loads=(left,), unload_since=5)


def test_the_annotation_has_room_for_the_longest_names() -> None:
    """Namespace and name may have 56 characters together."""
    assert names.is_qualified_name(loaded.annotation(f"{'n' * 28}/{'d' * 28}"))


def test_a_load_that_is_not_proven_has_no_fingerprint() -> None:
    """It is unknown whose modules are live then."""
    before = Loaded(loads=(load("a:1", fingerprint="v2:1"),))
    (left,) = before.with_load(load("a:2", fingerprint="v2:2"), is_proven=False).loads
    assert left.fingerprint == ""
    (left,) = before.with_load(load("a:2", fingerprint="v2:2")).loads
    assert left.fingerprint == "v2:2"


def test_a_fingerprint_alone_is_no_news() -> None:
    """Records of earlier releases have none; with other modules it is written as well."""
    old, new = Loaded(loads=(load("a:1"),)), Loaded(loads=(load("a:1", fingerprint="v2:1"),))
    assert new.as_written(old) == old
    other = Loaded(loads=(load("a:2", fingerprint="v2:2"),))
    assert other.as_written(old) == other
    assert other.as_written(new) == other


def test_a_fingerprint_that_is_no_word_is_not_written() -> None:
    """It comes from a pod."""
    text = loaded.render(Loaded(loads=(load("a:1", fingerprint="a b"),)))
    assert loaded.parse(text) == Loaded(loads=(load("a:1"),))
