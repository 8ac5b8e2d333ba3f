"""What became of the profile that is asked for, for whoever reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of what was asked.

    ``asked``, ``applied``: keys of profiles, the one that is wanted and the one in force; empty for none.
    ``message``: why these differ, or what waits. ``resources``: names that are offered or still in use.
    ``waiting``: how many GPUs and MIG instances are not yet offered as the one in force says; not in the answer.
    """

    asked: str = ""
    applied: str = ""
    message: str = ""
    resources: tuple[str, ...] = ()
    has_failed: bool = False
    waiting: int = 0

    @property
    def state(self) -> str:
        """The value of the label that says so."""
        return "failed" if self.has_failed else "success"
