"""A row beside a field: what the parser reads by it, and what the schema says."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from driver_builder.api.spec_kinds import Cel, Row, choice, converted, flag, maybe, needed, number, row, table, text
from driver_builder.api.spec_reader import Notes, Reader
from driver_builder.api.spec_rules import MODULE, TEMPLATE


class Kind(StrEnum):
    """Two words."""

    ONE = "one"
    TWO = "two"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One field of each sort."""

    name: str = row(needed(MODULE), "Its name.")
    base_image: str | None = row(text(TEMPLATE), "Its image.")
    tries: int = row(number(0, 3), "How often.", name="retries", default=2, is_filled=True)
    kind: Kind | None = row(choice(Kind))
    length: int = row(
        converted(text(TEMPLATE), lambda found, _parent, _name: len(found or "")), "Of a text.", name="of"
    )


def _check(given: Reader, read: Mapping[str, Any]) -> None:
    if read["tries"] == 0:
        given.wrong("is too few", "retries")


TABLE = table(
    Settings,
    checks=[_check],
    rules=[Cel("self.retries > 0", "is too few")],
    old_flag=Row(flag(), "Ignored.", is_ignored=True),
)


def read(given: object) -> tuple[Settings | None, list[str], tuple[Any, ...]]:
    """Read an object by the table."""
    notes = Notes()
    made = maybe(TABLE).read(Reader({"it": given}, (), notes), "it")
    return made, [str(problem) for problem in notes.problems], notes.unknown


def test_a_field_is_read_by_its_row() -> None:
    """By its name in camelCase, or by the one that the row gives it."""
    made, problems, unknown = read({"name": "a", "baseImage": "b", "retries": 1, "kind": "two", "of": "abc"})
    assert made == Settings(name="a", base_image="b", tries=1, kind=Kind.TWO, length=3)
    assert (problems, unknown) == ([], ())


def test_what_is_not_given_has_its_default() -> None:
    """And an object that may be missing is None."""
    assert read({"name": "a"})[0] == Settings(name="a", tries=2, length=0)
    assert read(None)[0] is None


def test_what_is_wrong_is_noted_at_its_field() -> None:
    """Also what is wrong with several fields together, and a field that is ignored."""
    _, problems, unknown = read({"retries": 0, "oldFlag": 1, "baseimage": "a"})
    assert [problem.partition(": ")[0] for problem in problems] == ["it.name", "it.oldFlag", "it.retries"]
    assert unknown == (("it", "baseimage"),)


def test_the_schema_says_the_same() -> None:
    """With what people read, the rules, and the default that the API server fills in."""
    schema = TABLE.schema()
    assert (schema["required"], schema["x-kubernetes-validations"]) == (
        ["name"], [{"rule": "self.retries > 0", "message": "is too few"}],
    )  # fmt: skip
    fields = schema["properties"]
    assert list(fields) == ["name", "baseImage", "retries", "kind", "of", "oldFlag"]
    assert fields["baseImage"] == {"description": "Its image.", **TEMPLATE.schema()}
    assert fields["retries"]["default"] == 2
    assert fields["kind"]["enum"] == ["one", "two"]
