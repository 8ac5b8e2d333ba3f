"""The package repositories that builds take kernel headers from, and their latest results. Values only.

A repository is known by its base image: the question is what a build in that image would get.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Repository:
    """The kernels that a build in ``base_image`` can use; ``template`` says how to ask for them.

    ``access`` distinguishes builds that reach it by a proxy or with CAs of their own; empty for all others.
    """

    template: str
    base_image: str
    architecture: str
    access: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.base_image} ({self.architecture})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """``releases`` as they were ``at`` a moment; ``error`` says why a later try at ``error_at`` failed. Epoch seconds.

    ``at`` is None if no try succeeded yet, ``error_at`` if none failed since.
    """

    releases: tuple[str, ...] = ()
    at: float | None = None
    error: str = ""
    error_at: float | None = None
