"""What stands on a Node of one driver."""

from collections.abc import Mapping

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects import loaded, validated
from driver_builder.objects.driver_keys import DriverKeys, driver_keys
from driver_builder.objects.loaded import UNREADABLE, Load, Loaded
from driver_builder.objects.stage_labels import Stage
from driver_builder.objects.validated import Validated
from driver_builder.objects.yielding import OUTSIDE, Yielding, render_yielding
from driver_builder.snapshot.inventory import Node, Taint
from driver_builder.snapshot.node_record import NodeRecord, record_of
from kube_api import names

DRIVER, OTHER = DriverKey("ns/mem"), DriverKey("ns/ofed")
KEYS = driver_keys(DRIVER)
HERE = Load(target="0" * 8, kernel="6.1", boot_id="b", modules=(("mem", "1"),))
BEFORE = Load(target="1" * 8, kernel="6.0", boot_id="a", modules=(("mem", "0"),))
FILES = Load(target="2" * 8, kernel="6.0", boot_id="a", firmware=True)
LOADED = Loaded(loads=(HERE, BEFORE, FILES))
VALIDATED = Validated(subject="0" * 16, succeeded=True)


def record(
    labels: Mapping[str, str] = {}, annotations: Mapping[str, str] = {}, taints: tuple[Taint, ...] = ()
) -> NodeRecord:
    """Return what stands on a node with all this, which is on boot ``b``."""
    annotations = {names.BOOT_ID_ANNOTATION: "b", **annotations}
    return record_of(Node(name="n", labels=labels, annotations=annotations, taints=taints), DRIVER)


def test_the_keys_are_those_that_nodes_have() -> None:
    """Letter by letter: another version finds what it knows."""
    assert (
        DriverKeys(
            ready="driverwright.io/ns.mem.ready",
            wave="driverwright.io/ns.mem.wave",
            yields="driverwright.io/ns.mem.yield",
            wants="driverwright.io/ns.mem.want",
            taint="driverwright.io/ns.mem",
            tainted="pending.driverwright.io/ns.mem",
            loaded="loaded.driverwright.io/ns.mem",
            validated="validated.driverwright.io/ns.mem",
            stages={stage: f"driverwright.io/ns.mem.{stage}" for stage in ("valid", "run", "plug", "plgok")},  # type: ignore[misc]
        )
        == KEYS
    )


def test_a_node_has_nothing_of_a_driver() -> None:
    """What others have there is theirs."""
    other = driver_keys(OTHER)
    found = record(
        {other.ready: "1", other.wave: "w", other.yields: OUTSIDE, other.wants: "1", other.stages[Stage.RUN]: "true"},
        {other.ready: "b 6.1", other.loaded: "{}", other.validated: "{}", other.tainted: "b"},
        (Taint(key=other.taint, value="pending", effect="NoSchedule"),),
    )
    assert (found.ready, found.proven_on, found.wave, found.wants, found.loaded, found.loaded_text) == (None,) * 6
    assert (found.validated, found.tainted_on, found.record(Stage.RUN), found.loads, found.loads_now) == (
        None, None, None, (), (),
    )  # fmt: skip
    assert not any((found.is_kept_away, found.is_held_out, found.has_yielded, found.is_to_yield))
    assert not any((found.is_recorded, found.may_be_loaded, found.is_tainted, found.has(Stage.RUN)))


def test_labels_annotations_and_taint_are_read() -> None:
    """Each by its own key."""
    found = record(
        {KEYS.ready: "1.0", KEYS.wave: "w", KEYS.wants: "1.1", KEYS.stages[Stage.PLUG]: "true"},
        {
            KEYS.ready: "b 6.1", KEYS.loaded: loaded.render(LOADED), KEYS.validated: validated.render(VALIDATED),
            KEYS.tainted: "a", KEYS.stages[Stage.RUN]: "7",
        },
        (Taint(key=KEYS.taint, value="pending", effect="NoSchedule"),),
    )  # fmt: skip
    assert (found.ready, found.proven_on, found.wave, found.wants) == ("1.0", "b 6.1", "w", "1.1")
    assert (found.loaded, found.loads, found.validated) == (LOADED, LOADED.loads, VALIDATED)
    assert [load.target for load in found.loads_now] == [HERE.target, FILES.target]
    assert (found.is_tainted, found.tainted_on) == (True, "a")
    assert [stage for stage in Stage if found.has(stage)] == [Stage.PLUG]
    assert (found.record(Stage.RUN), found.record(Stage.PLUG)) == ("7", None)


@pytest.mark.parametrize("annotations", [{KEYS.loaded: "{"}, {KEYS.loaded: loaded.render(LOADED)}], ids=["bad", "good"])
def test_a_record_that_cannot_be_read_is_one(annotations: dict[str, str]) -> None:
    """The driver may be loaded, whatever it says."""
    found = record(annotations=annotations)
    assert found.may_be_loaded
    assert found.is_recorded
    assert found.loaded is not None
    assert (found.loaded.given_up == UNREADABLE) is (found.loads == ())


def test_a_ready_label_alone_says_that_it_may_be_loaded() -> None:
    """Of earlier versions there is nothing else."""
    assert record({KEYS.ready: "1"}).may_be_loaded


@pytest.mark.parametrize(
    ("value", "first", "is_outside"),
    [
        pytest.param("ofed", "ns/ofed", False, id="it yields"),
        pytest.param(OUTSIDE, "ns/ofed", True, id="it was outside, and is to yield later"),
        pytest.param(OUTSIDE, f"ns/{OUTSIDE}", False, id="it yields to a driver of that name"),
        pytest.param(OUTSIDE, "", True, id="it was outside"),
    ],
)
def test_a_driver_that_was_outside_has_not_yielded_yet(value: str, first: str, is_outside: bool) -> None:
    """The label is the same; its value and the record say why it is there."""
    written = render_yielding(Yielding(first=DriverKey(first), drivers=(DRIVER,)))
    found = record({KEYS.yields: value}, {names.YIELDING_ANNOTATION: written} if first else {})
    assert (found.is_kept_away, found.is_held_out, found.has_yielded) == (True, is_outside, not is_outside)
    assert found.is_to_yield is bool(first)
