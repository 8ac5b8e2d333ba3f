"""Writes ``docs/reasons.md`` from the table of reasons: ``make docs``."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from driver_builder.base.reasons import SECTIONS, Meaning, Reason, Suspends

PAGE = Path(__file__).parents[1] / "docs/reasons.md"

_HEAD = """\
<!-- Made by make docs from driver_builder/base/reasons.py: change that file. -->

# Reasons

Every reason that driver-builder reports: in `status` (targets and conditions), Events, metrics, logs and the commands.
The message beside a reason says what is wrong in that case. Conditions, Events and `driver-builder explain`, `status`,
`plan`, `preflight` and `gate` add what is in the column "What to do"; the messages of `status.targets` do not.

- **State**: the state of a target with this reason. `Failed`: a build is tried again after 30 s, 1 min, 2 min ... up to
  an hour (`driver-builder explain NODE` says when), and at once when the spec or the source changes. `Blocked` and
  `Pending`: it continues by itself when the cause is gone.
- **Suspends**: when five builds in a row fail for this reason, the builds of the driver, or all builds, are suspended
  (`BuildsSuspended`).
"""


def page() -> str:
    """Make the page."""
    return "\n".join([_HEAD, *(_section(title, part) for title, part in SECTIONS.items())])


def _section(title: str, part: Mapping[Reason, Meaning]) -> str:
    has_states = any(meaning.states for meaning in part.values())
    has_suspends = any(meaning.suspends for meaning in part.values())
    head = ["Reason", *(["State"] if has_states else []), "What it means", "What to do"]
    head += ["Suspends"] if has_suspends else []
    lines = [f"## {title}", "", _row(head), _row("---" for _ in head)]
    for reason, meaning in part.items():
        states = ", ".join(f"`{state}`" for state in meaning.states)
        cells = [f"`{reason}`", *([states] if has_states else []), meaning.summary, meaning.remedy]
        cells += [_SUSPENDS[meaning.suspends]] if has_suspends else []
        lines.append(_row(cells))
    return "\n".join([*lines, ""])


_SUSPENDS = {Suspends.NONE: "", Suspends.OF_DRIVER: "the driver's", Suspends.ALL: "all"}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
