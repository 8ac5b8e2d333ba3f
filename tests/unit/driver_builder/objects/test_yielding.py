"""The record of a node where drivers yield to one that they depend on."""

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.yielding import (
    OUTSIDE,
    Yielding,
    is_yield_label,
    parse_yielding,
    render_yielding,
    yield_labels,
    yielding_of,
)
from kube_api import names

MEM = DriverKey("ns/mem")
LABEL = driver_keys(MEM).yields
RECORD = Yielding(first=DriverKey("ns/ofed"), drivers=(DriverKey("ns/app"), MEM))


def test_a_record_is_read_as_it_was_written() -> None:
    """In the order in which the drivers yield."""
    assert yielding_of({names.YIELDING_ANNOTATION: render_yielding(RECORD)}) == RECORD
    assert yielding_of({}) is None


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"first":"a/b"}', '{"first":1,"drivers":[]}', "9" * 5000,
                                  '{"first":"a/b","drivers":["' + "x" * 400 + '/y"]}'])  # fmt: skip
def test_what_cannot_be_read_is_nobodys(text: str) -> None:
    """Anybody who may annotate Nodes may have written it."""
    assert parse_yielding(text) == Yielding()


def test_the_label_names_the_driver_and_is_known_again() -> None:
    """It has room wherever the ready label has."""
    assert LABEL == "driverwright.io/ns.mem.yield"
    assert is_yield_label(LABEL)
    assert not is_yield_label(names.ready_label("ns", "mem"))
    assert len(LABEL) == len(names.ready_label("ns", "mem"))


@pytest.mark.parametrize(
    ("value", "first", "is_outside"),
    [
        pytest.param("ofed", "ns/ofed", False, id="it yields"),
        pytest.param(OUTSIDE, "ns/ofed", True, id="it was outside, and is to yield later"),
        pytest.param(OUTSIDE, f"ns/{OUTSIDE}", False, id="it yields to a driver of that name"),
        pytest.param(OUTSIDE, "", True, id="it was outside"),
    ],
)
def test_the_label_of_a_driver_that_was_outside_stays(value: str, first: str, is_outside: bool) -> None:
    """Only what yields comes back with others."""
    record = Yielding(first=DriverKey(first), drivers=(MEM,))
    annotations = {names.YIELDING_ANNOTATION: render_yielding(record)} if first else {}
    assert yield_labels({LABEL: value, "pool": "edu"}, annotations) == ([] if is_outside else [LABEL])
