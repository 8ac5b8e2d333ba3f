"""What a profile makes of the node's cards: under which resource each one is, and how many containers may share it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One card or MIG instance under the resource that it is offered as.

    ``unit``: its UUID. ``shares``: how many containers may have it at once; 1: it is given whole.
    """

    resource: str
    unit: str
    shares: int = 1
