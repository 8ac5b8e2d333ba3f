"""Writes the table of ``docs/drivercontainer.md`` from the rows of a DriverContainer's spec: ``make docs``."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from driver_builder.api.driver_spec import SPEC
from driver_builder.api.spec_kinds import Row

PAGE = Path(__file__).parents[1] / "docs/drivercontainer.md"
_TABLE = re.compile(r"(?<=<!-- fields -->\n).*(?=<!-- end -->)", re.DOTALL)
_DOCUMENT = re.compile(r"docs/([\w-]+\.md)")
_LINK = r"[\1](\1)"
_DURATION = re.compile(r"must be a duration from (\w+) to (\w+)")


def page() -> str:
    """Make the page."""
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (("field", "value", "meaning"), ("---",) * 3, *_rows()))
    return _TABLE.sub(lambda _: f"\n{table}\n", PAGE.read_text())


def _rows() -> Iterator[tuple[str, str, str]]:
    for path, row in fields(SPEC.rows):
        yield f"`{path}`", ", ".join(_values(row)), _meaning(row)


def fields(rows: Mapping[str, Row], path: str = "") -> Iterator[tuple[str, Row]]:
    """Return each field by its path, but for those that are ignored."""
    for row in rows.values():
        if row.is_ignored:
            continue
        schema = row.schema()
        inner = f"{path}{row.name}{'[]' if schema.get('type') == 'array' else ''}."
        is_reference = not row.kind.rows and "name" in schema.get("items", schema).get("properties", ())
        yield f"{inner}name" if is_reference else f"{path}{row.name}", row
        yield from fields(row.kind.rows, inner)


def _values(row: Row) -> Iterator[str]:
    schema = row.schema()
    if row.is_required:
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
    default = "Default is `{}`.".format(json.dumps(row.default).strip('"')) if row.is_filled else ""
    return " ".join(filter(None, (_DOCUMENT.sub(_LINK, words), default, row.more)))


if __name__ == "__main__":
    PAGE.write_text(page())
