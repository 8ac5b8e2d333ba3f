"""What a registry can say about an image: a closed union, so that only a proven absence ever starts a build."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The image is there: its manifest's ``digest`` and the labels of its config."""

    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """The registry answered that it has no such image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unauthorised:
    """The registry does not let us look: wrong or missing credentials."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No answer, a server error, or a limit to how often it may be asked: then ``retry_after`` is in seconds."""

    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """Something answered that is no registry, or a manifest that cannot be read."""

    message: str


ImageState = Present | Absent | Unauthorised | Unreachable | Invalid
