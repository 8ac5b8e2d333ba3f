"""How much one expansion may do: a template is written by a user and runs on every node of the cluster.

One meter counts everything: evaluated nodes, visited elements and allocated bytes. It is asked *before* memory is
taken, so that ``repeat 1000000000`` costs nothing.
"""

from typing import Any

from feature_rules.errors import FunctionError

MAX_SOURCE_BYTES = 65536
"""Upstream's limit on the text of one template."""

MAX_OUTPUT_BYTES = 1 << 20
MAX_WORK = 200_000
"""Units of work of one expansion: about half a second of one core."""

BYTES_PER_UNIT = 64
"""Allocated bytes that cost as much as one evaluated node; all work together allocates 12 MiB at most."""

MAX_NESTING = 100
"""Depth of parentheses, of blocks, and of templates that use each other."""


class Meter:
    """Counts the work of one expansion down."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, units: int) -> None:
        """Take ``units`` of work.

        Raises:
            FunctionError: when nothing is left.
        """
        self._left -= units
        if self._left < 0:
            raise FunctionError(
                f"the template does too much work (more than {MAX_WORK} steps or {MAX_WORK * BYTES_PER_UNIT >> 20} MiB"
                " of values): shorten its loops and its strings"
            )

    def allocate(self, size: int) -> None:
        """Take the work of a value of ``size`` bytes, before it is made."""
        if size > 0:
            self.spend(size // BYTES_PER_UNIT)

    def visit(self, value: Any) -> None:
        """Take the work of walking through ``value`` with all its elements, even when it contains itself."""
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                self.spend(1 + len(item) // BYTES_PER_UNIT)
                continue
            self.spend(1)
            if isinstance(item, dict):
                self.spend(len(item))
                pending.extend(item.values())
            elif isinstance(item, list):
                self.spend(len(item) // 8)
                pending.extend(item)

    def glance(self, value: Any) -> None:
        """Take the work of one look at ``value``: its length, not its elements."""
        if isinstance(value, str | list | dict):
            self.spend(len(value) // BYTES_PER_UNIT)
