"""A spec is read once per generation, right or wrong, and forgotten with its object."""

from driver_builder.api import driver_container
from driver_builder.api.spec_cache import SpecCache
from driver_builder.base.errors import InvalidDriver
from tests.support.driver_builder.factories import Json, driver_object


def generation(number: int, **changes: object) -> Json:
    """Make an object of a generation."""
    obj = driver_object(spec_changes=dict(changes))
    obj["metadata"]["generation"] = number
    return obj


def test_a_generation_is_read_once() -> None:
    """Expressions that do not compile would take their time in each reconcile."""
    known = SpecCache()
    wrong = generation(1, kernelMappings=[{"regexp": "6.(1"}])
    first = driver_container.parse(wrong, known).spec
    assert isinstance(first, InvalidDriver)
    assert driver_container.parse(wrong, known).spec is first
    right = driver_container.parse(generation(2), known).spec
    assert not isinstance(right, InvalidDriver)
    assert driver_container.parse(generation(2), known).spec is right


def test_what_is_gone_is_forgotten() -> None:
    """The cache holds as much as there are objects."""
    known = SpecCache()
    first = driver_container.parse(generation(1), known)
    known.keep([])
    assert driver_container.parse(generation(1), known).spec is not first.spec
    known.keep([first.uid])
    assert len(known._known) == 1


def test_a_driver_that_comes_while_others_are_forgotten_does_no_harm() -> None:
    """A watch's thread reads it in the middle of a reconcile."""
    known = SpecCache()
    comes: list[str] = []

    class Uid(str):
        __slots__ = ()

        def __hash__(self) -> int:
            if comes:
                known.read(comes.pop(), 1, lambda: InvalidDriver("new"))
            return str.__hash__(self)

    wrong = InvalidDriver("old")
    for uid in (Uid("a"), Uid("b")):
        known.read(uid, 1, lambda: wrong)
    comes.append("c")
    known.keep(["a", "b"])
    assert known.read("a", 1, lambda: InvalidDriver("again")) is wrong
