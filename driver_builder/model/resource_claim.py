"""Which devices a text stands for: a resource, all of a domain, all that begin alike, or those of a DRA driver. Pure.

Device plugins claim by it, drains select pods by it, and the controller allows by it what other programs may ask. What
stands for more than one name ends in a slash (``nvidia.com/``) or a star (``nvidia.com/mig-*``), as no name does. The
claim of a DRA driver begins with ``dra:``, as no resource does: a kubelet knows one driver of a name.
"""

import re
from collections.abc import Iterable

_DOMAIN = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/"
RESOURCE = rf"{_DOMAIN}[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
"""The name of an extended resource, as a regular expression."""
PATTERN = re.compile(rf"{_DOMAIN}(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9*])?|\*)")
"""One name, or what names begin with and a star."""
MAX_NAME = 317
"""Characters of such a name: a domain, a slash and a name."""
_DRA = "dra:"


def of_dra_driver(name: str) -> str:
    """Return the claim of a driver of dynamic resource allocation."""
    return f"{_DRA}{name}"


def covers(claim: str, name: str) -> bool:
    """Return whether a resource belongs to a claim."""
    begin = _begin(claim)
    return name == claim if begin is None else name.startswith(begin)


def covers_any(claim: str, names: Iterable[str]) -> bool:
    """Return whether one of the resources belongs to a claim."""
    return any(covers(claim, name) for name in names)


def overlap(claim: str, other: str) -> bool:
    """Return whether some resource may belong to both claims."""
    begin, begin_of_other = _begin(claim), _begin(other)
    if begin is None or begin_of_other is None:
        return covers(claim, other) or covers(other, claim)
    return begin.startswith(begin_of_other) or begin_of_other.startswith(begin)


def words(claim: str) -> str:
    """Return how messages name what is claimed."""
    if claim.startswith(_DRA):
        return f"devices by DRA driver {claim.removeprefix(_DRA)}"
    return f"resources in {claim}" if claim.endswith("/") else claim


def _begin(claim: str) -> str | None:
    """Return what all names of a claim begin with; None for a claim of one name."""
    if claim.endswith("*"):
        return claim[:-1]
    return claim if claim.endswith("/") else None
