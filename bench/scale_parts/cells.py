"""The fleets that are measured, and what is asked for at the largest. Pure."""

import re
from typing import NamedTuple


class Cell(NamedTuple):
    """A fleet: every driver is on every node, so there are ``nodes`` times ``drivers`` driver pods."""

    nodes: int
    kernels: int
    drivers: int

    @property
    def pods(self) -> int:
        """How many driver pods there are."""
        return self.nodes * self.drivers

    def __str__(self) -> str:
        return f"{self.nodes}x{self.kernels}x{self.drivers}"


CELLS = (Cell(1000, 5, 1), Cell(5000, 5, 1), Cell(1000, 5, 30), Cell(5000, 50, 10))
DEFAULT = CELLS[:2]
TARGET_CELL = CELLS[-1]

_CELL = re.compile(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)")


def parse_cell(text: str) -> Cell:
    """Read ``NODESxKERNELSxDRIVERS``.

    Raises:
        ValueError: it is something else, or there are more kernels than nodes.
    """
    found = _CELL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no cell: write NODESxKERNELSxDRIVERS, such as {CELLS[0]}")
    cell = Cell(*map(int, found.groups()))
    if cell.kernels > cell.nodes:
        raise ValueError(f"{text}: {cell.kernels} kernels need as many nodes")
    return cell
