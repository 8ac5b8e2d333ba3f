"""What a plugin claims on a node: an extended resource, every one of a domain, or the name of a DRA driver. Pure.

A claim of a domain ends in a slash, as no name does (``nvidia.com/``): which resources come depends on the devices.
That of a DRA driver begins with ``dra:``, as no resource does: a kubelet knows one driver of a name.
"""

from collections.abc import Iterable

_DRA = "dra:"


def of_dra_driver(name: str) -> str:
    """Return the claim of a driver of dynamic resource allocation."""
    return f"{_DRA}{name}"


def covers(claim: str, name: str) -> bool:
    """Return whether a resource belongs to a claim."""
    return name == claim or (claim.endswith("/") and name.startswith(claim))


def covers_any(claim: str, names: Iterable[str]) -> bool:
    """Return whether one of the resources belongs to a claim."""
    return any(covers(claim, name) for name in names)


def overlap(claim: str, other: str) -> bool:
    """Return whether some resource may belong to both claims."""
    return covers(claim, other) or covers(other, claim)


def words(claim: str) -> str:
    """Return how messages name what is claimed."""
    if claim.startswith(_DRA):
        return f"devices by DRA driver {claim.removeprefix(_DRA)}"
    return f"resources in {claim}" if claim.endswith("/") else claim
