"""Results that are remembered for the objects that they were computed from."""

from driver_builder.base.memo import remembers_last, remembers_texts


def test_the_same_objects_are_not_computed_again() -> None:
    """Equal ones are: nothing is compared."""
    calls = []

    @remembers_last(2)
    def length(values: tuple[str, ...]) -> int:
        calls.append(values)
        return len(values)

    one, other = tuple("ab"), tuple("ab")
    assert [length(one), length(one), length(other)] == [2, 2, 2]
    assert len(calls) == 2


def test_only_the_last_results_are_kept() -> None:
    """The oldest goes first, and is computed again when it is asked for."""
    calls = []

    @remembers_last(1)
    def length(values: tuple[str, ...]) -> int:
        calls.append(values)
        return len(values)

    one, other = tuple("a"), tuple("ab")
    assert [length(one), length(other), length(one)] == [1, 2, 1]
    assert len(calls) == 3


def test_what_is_asked_for_stays() -> None:
    """The result that nobody asked for the longest goes, not the oldest."""
    calls = []

    @remembers_last(2)
    def length(values: tuple[str, ...]) -> int:
        calls.append(values)
        return len(values)

    often, once, last = tuple("a"), tuple("ab"), tuple("abc")
    assert [length(values) for values in (often, once, often, last, often)] == [1, 2, 1, 3, 1]
    assert len(calls) == 3


def test_a_long_text_is_not_kept() -> None:
    """What others wrote may be of any length."""
    calls = []

    @remembers_texts
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    assert [length("a"), length("a"), length("b" * 5000), length("b" * 5000)] == [1, 1, 5000, 5000]
    assert len(calls) == 3
