"""Writes the table of ``docs/drivercontainer.md`` from the rows of a DriverContainer's spec: ``make docs``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from driver_builder.api.driver_spec import SPEC
from driver_builder.api.spec_kinds import Described, Object, Reference, References, Row

Json = dict[str, Any]

PAGE = Path(__file__).parents[1] / "docs/drivercontainer.md"
_TABLE = re.compile(r"(?<=<!-- fields -->\n).*(?=<!-- end -->)", re.DOTALL)
_DOCUMENT = re.compile(r"docs/([\w-]+\.md)")
_LINK = r"[\1](\1)"
_DURATION = re.compile(r"must be a duration from (\w+) to (\w+)")
_NAMED = {Reference: ".name", References: "[].name"}


def page() -> str:
    """Make the page."""
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (("field", "value", "meaning"), ("---",) * 3, *_rows()))
    return _TABLE.sub(lambda _: f"\n{table}\n", PAGE.read_text())


def _rows() -> Iterator[tuple[str, str, str]]:
    for path, row, is_required in fields(SPEC):
        yield f"`{path}`", ", ".join(_values(row.schema(), is_required=is_required)), _meaning(row)


def fields(kind: Any, path: str = "") -> Iterator[tuple[str, Row, bool]]:
    """Return each field by its path, with whether its object needs it; not those that are ignored."""
    while not isinstance(kind, Object | Described) and hasattr(kind, "kind"):
        kind = kind.kind
    if isinstance(kind, Described):
        yield from _described(kind, kind.fields.schema(), path)
    if not isinstance(kind, Object):
        return
    required = kind.schema().get("required", ())
    for name, row in kind.fields().items():
        if name not in kind.ignored:
            yield f"{path}{name}{_NAMED.get(type(row.kind), '')}", row, name in required
            yield from fields(row.kind, f"{path}{name}{'[]' if row.schema().get('type') == 'array' else ''}.")


def _described(kind: Described, part: Json, path: str, inner: str = "") -> Iterator[tuple[str, Row, bool]]:
    for name, child in part.get("properties", {}).items():
        row = Row(_Schema(child), kind.words[f"{inner}{name}"])
        yield f"{path}{name}", row, name in part.get("required", ())
        yield from _described(kind, child, f"{path}{name}.", f"{inner}{name}.")


class _Schema:
    """A kind of which only the schema is known."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema

    def read(self, *_: object) -> None:
        raise NotImplementedError

    def schema(self) -> Json:
        return self._schema


def _values(schema: Json, *, is_required: bool) -> Iterator[str]:
    if is_required:
        yield "required"
    bounds = next((_DURATION.search(rule["message"]) for rule in schema.get("x-kubernetes-validations", ())), None)
    if "enum" in schema:
        yield " or ".join(f"`{word}`" for word in schema["enum"] if word is not False)
    elif bounds:
        yield f"{bounds[1]} to {bounds[2]}"
    elif "minimum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}" + (" or a percentage" if "anyOf" in schema else "")
    elif schema.get("type") == "array":
        yield f"list, at most {schema['maxItems']}"
    elif "additionalProperties" in schema:
        yield f"mapping, at most {schema['maxProperties']}"
    elif schema.get("type") == "boolean":
        yield "`true` or `false`"


def _meaning(row: Row) -> str:
    words = row.description.replace("<", r"\<").replace("*", r"\*")
    return f"{_DOCUMENT.sub(_LINK, words)} {row.more}".strip()


if __name__ == "__main__":
    PAGE.write_text(page())
