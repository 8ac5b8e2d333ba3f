"""A table for people, as kubectl prints one."""

import sys
from collections.abc import Sequence


def write_table(rows: Sequence[Sequence[str]], gap: str = "  ") -> None:
    """Print rows of equally many cells, the first of which has the headings; the last column is as long as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write(f"{gap.join((*cells, row[-1]))}\n")
