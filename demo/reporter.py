"""How the demo speaks to the person who watches: a console, tables, and which step it was that failed."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.stage import NodeRow
from testbed.progress import Progress, Step

PIPE_WIDTH = 200


def console() -> Console:
    """Make the console; where no terminal says how wide it is, tables get room for kernels and digests."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


class NamedSteps:
    """Passes steps on and remembers the name of the one that failed first."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self.failed = ""

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Open a step."""
        with self._inner.step(name) as step:
            try:
                yield step
            except BaseException:
                self.failed = self.failed or name
                raise


def table(title: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Make a table; long words are folded, never cut."""
    made = Table(title=title)
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(escape(word) for word in row))
    return made


def drivers(rows: Iterable[NodeRow]) -> Table:
    """Show the final table."""
    return table(
        "nodes and their drivers",
        ("node", "kernel", "image", "digest", "module", "device", "ready"),
        (
            (row.node, row.kernel, row.image.rpartition("/")[2], row.digest[:19], row.module, row.device, row.ready)
            for row in rows
        ),
    )


def failure(to: Console, step: str, error: BaseException, seconds: float) -> None:
    """Say loudly that the demo failed, in which step and why."""
    to.print(
        f"demo failed after {seconds:.0f} s" + (f' in step "{step}"' if step else ""), style="bold red", markup=False
    )
    to.print(str(error), markup=False, soft_wrap=True)


def success(to: Console, seconds: float) -> None:
    """Say that the demo came true."""
    to.print(f"[bold green]demo done[/] in {seconds:.0f} s")
