"""Writes the table of keys of Nodes into ``docs/drivercontainer.md``: ``make docs``."""

import re
from collections.abc import Iterator

from driver_builder.objects.node_keys import NODE_KEYS, Kind, NodeKey
from tests.fields_page import PAGE

_TABLE = re.compile(r"(?<=<!-- node keys -->\n).*(?=<!-- end of node keys -->)", re.DOTALL)
_HEAD = ("key", "is", "written by", "value", "meaning", "if it is lost", "an admin may")


def page() -> str:
    """Make the page."""
    rows = (_HEAD, ("---",) * len(_HEAD), *map(tuple, map(_cells, NODE_KEYS)))
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return _TABLE.sub(lambda _: f"\n{table}\n", PAGE.read_text())


def _cells(row: NodeKey) -> Iterator[str]:
    first, *others = row.stages or ("",)
    yield ", ".join((f"`{row.key.replace('<stage>', first)}`", *(f"`.{stage}`" for stage in others)))
    yield row.kind
    removed = (f"{writer} (removes it)" for writer in row.removers)
    yield ", ".join((*row.writers, *removed))
    yield f"{row.form}; at most {row.longest} characters" if row.kind is Kind.ANNOTATION else row.form
    yield row.meaning
    yield row.loss
    yield row.admin


if __name__ == "__main__":
    PAGE.write_text(page())
