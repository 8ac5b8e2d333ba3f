"""What a device plugin claims of a node's extended resources: one name, or every name of a domain. Pure.

A claim of a domain ends in a slash, as no name does (``nvidia.com/``): which resources come depends on the devices.
"""

from collections.abc import Iterable


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
    return f"resources in {claim}" if claim.endswith("/") else claim
