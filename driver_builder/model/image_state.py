"""What a registry can answer about an image: a closed union, so that only a proven absence starts a build."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from driver_builder.base.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The image exists: its manifest's ``digest`` and the labels of its config.

    ``is_signed`` says whether the registry holds a signature of it by the driver's image key, None without such a key.
    """

    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)
    is_signed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """The registry answered that it has no such image; a build starts only if the answer ``is_fresh``."""

    is_fresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAsked:
    """The registry has not been asked or has not answered yet: nothing is known."""

    reason: ClassVar = Reason.REGISTRY_NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Unauthorized:
    """The registry refuses access: wrong or missing credentials."""

    reason: ClassVar = Reason.REGISTRY_UNAUTHORIZED
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No answer, a server error, or a limit to how often it may be asked: then ``retry_after`` is in seconds.

    ``is_silent``: there was no answer at all, so other images of the same registry are not asked for at once.
    """

    reason: ClassVar = Reason.REGISTRY_UNREACHABLE
    message: str
    retry_after: float | None = None
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """The answer is not that of a registry, or the manifest cannot be read."""

    reason: ClassVar = Reason.REGISTRY_INVALID
    message: str


NoAnswer = Unauthorized | Unreachable | Invalid
"""What does not say whether the image exists."""

ImageState = Present | Absent | NotAsked | Unauthorized | Unreachable | Invalid
