"""What became of the profile that is asked for, for whoever reports it."""

from dataclasses import dataclass, replace


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

    def beside(self, other: "Verdict") -> "Verdict":
        """Add what became of it for other units; of another profile than the one in force they say nothing."""
        names = tuple(sorted({*self.resources, *other.resources}))
        if other.asked != (self.applied or self.asked):
            return replace(self, resources=names)
        message = "; ".join(dict.fromkeys(filter(None, (self.message, other.message))))
        return replace(self, message=message, resources=names, has_failed=self.has_failed or other.has_failed)

    @property
    def state(self) -> str:
        """The value of the label that says so."""
        return "failed" if self.has_failed else "success"
