"""Variables of a container's environment that a spec gives: ``env`` with names and values. Pure."""

from dataclasses import dataclass
from typing import Any

from driver_builder.api.spec_kinds import Needed, Objects, Row, Text, table
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


@dataclass(frozen=True, slots=True)
class Environment:
    """The kind of ``env``; ``names`` says what a variable may be called."""

    names: Rule
    empty: tuple[EnvironmentVariable, ...] = ()

    @property
    def kind(self) -> Objects[EnvironmentVariable]:
        """A list of variables, in which each may be twice."""
        value = Row(Text(TEXT), "Its value; empty without it.")
        return Objects(table(EnvironmentVariable, name=Row(Needed(self.names)), value=value))

    def read(self, parent: Reader, name: str) -> tuple[EnvironmentVariable, ...]:
        """Read it, as empty where it is missing."""
        found = self.kind.read(parent, name)
        if len({item.name for item in found}) < len(found):
            parent.wrong("names a variable twice: name each once", name)
        return found

    def schema(self) -> dict[str, Any]:
        """Write the same as an OpenAPI schema."""
        return self.kind.schema()
