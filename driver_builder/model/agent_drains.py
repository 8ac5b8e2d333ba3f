"""What device agents may have drained, as the controller is started with it. Pure."""

from dataclasses import dataclass

from driver_builder.model import resource_claim

MAX_PATTERNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDrains:
    """For which ``resources`` pods are evicted when the device agent of their node asks for it; none: it is refused.

    Nodes with a pod of one of ``daemon_sets`` (``namespace/name``) may ask, besides those with a pod of a stage.
    """

    resources: tuple[str, ...] = ()
    daemon_sets: frozenset[str] = frozenset()

    def allows(self, resource: str) -> bool:
        """Return whether pods may be evicted because they request a resource."""
        return any(resource_claim.covers(pattern, resource) for pattern in self.resources)


def resource_patterns(text: str) -> tuple[str, ...]:
    """Read ``nvidia.com/gpu*,nvidia.com/mig-*``; nothing at all, and ``none``, are no resource.

    Raises:
        ValueError: names the word that is no pattern, or says that there are too many.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = [] if words == ["none"] else words
    for word in found:
        if len(word) > resource_claim.MAX_NAME or not resource_claim.PATTERN.fullmatch(word):
            raise ValueError(f"{word!r} is not an extended resource: write DOMAIN/NAME, DOMAIN/BEGIN*, ... or none")
    if len(found) > MAX_PATTERNS:
        raise ValueError(f"it has {len(found)} entries: write at most {MAX_PATTERNS}")
    return tuple(found)
