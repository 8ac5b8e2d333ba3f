"""The package repositories that builds take kernel headers from, and what they said last. Values only.

A repository is known by the base image that knows it: what is asked is what a build in that image would be given.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Repository:
    """The kernels that a build in ``base_image`` can be given, ``template`` says how to ask for them."""

    template: str
    base_image: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.base_image} ({self.architecture})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """``releases`` as they were ``at`` a moment; ``error`` says why a later try at ``error_at`` failed. Epoch seconds.

    ``at`` is None where no try succeeded yet, ``error_at`` where none failed since.
    """

    releases: tuple[str, ...] = ()
    at: float | None = None
    error: str = ""
    error_at: float | None = None
