"""What commands read and print: the files they are given, tables as kubectl prints them, JSON."""

import json
import sys
from collections.abc import Sequence

from device_agent.errors import ConfigurationError
from device_agent.regular_file import read_regular


def read_input(path: str, most: int) -> str:
    """Read a file of at most so many bytes; what is no UTF-8 in it is for its parser to refuse.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return read_regular(path, most).decode(errors="surrogateescape")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def write_table(rows: Sequence[Sequence[str]], gap: str = "  ") -> None:
    """Print rows of equally many cells, the first of which has the headings; the last column is as long as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write(f"{gap.join((*cells, row[-1]))}\n")


def write_json(value: object) -> None:
    """Print a value for programs."""
    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")
