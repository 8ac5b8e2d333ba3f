"""Variables of a container's environment that a spec gives: ``env`` with names and values. Pure."""

from dataclasses import dataclass

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


def read_env(container: Reader, names: Rule) -> tuple[EnvironmentVariable, ...]:
    """Read ``env``; ``names`` says what a variable may be called."""
    found = tuple(
        EnvironmentVariable(name=item.needed("name", names), value=item.text("value", TEXT) or "")
        for item in container.objects("env")
    )
    if len({item.name for item in found}) < len(found):
        container.wrong("names a variable twice: name each once", "env")
    return found
