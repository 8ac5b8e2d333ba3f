"""Variables of a container's environment that a spec gives: ``env`` with names and values. Pure."""

from dataclasses import dataclass

from driver_builder.api.spec_kinds import Kind, Row, converted, needed, objects, table, text
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import TEXT, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariable:
    """A variable of an image's own program."""

    name: str
    value: str = ""

    def of_container(self) -> dict[str, str]:
        """Write it as containers have it: the API server leaves an empty value out."""
        return {"name": self.name, **({"value": self.value} if self.value else {})}


def environment(names: Rule) -> Kind[tuple[EnvironmentVariable, ...]]:
    """Return the kind of ``env``; ``names`` says what a variable may be called."""
    value = Row(text(TEXT), "Its value; empty without it.")
    return converted(objects(table(EnvironmentVariable, name=Row(needed(names)), value=value)), _each_once)


def _each_once(found: tuple[EnvironmentVariable, ...], parent: Reader, name: str) -> tuple[EnvironmentVariable, ...]:
    if len({item.name for item in found}) < len(found):
        parent.wrong("names a variable twice: name each once", name)
    return found
