"""Which pushed images may be removed, and why the others stay? Pure.

Place in the flow: ``gc`` reads record and cluster, :func:`by_need` finds what has not been needed for long, the
registries are asked about that, and :func:`by_tags` decides. In doubt an image stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Any

from driver_builder.model.permissions import allows_repository
from driver_builder.retention.needed import Needed
from driver_builder.retention.record import PushedImage, Record
from kube_api.text import first_few

MOST_NAMED = 3
"""Tags that a reason names; it counts the others."""

Place = tuple[str, str]
"""Host and repository."""


class Fate(StrEnum):
    """What happens to an image, or has happened."""

    KEEP = "keep"
    DELETE = "delete"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcResult:
    """What happens to an image, and why; ``size`` in bytes, where it is known.

    ``unseen`` says that it stays only because something could not be read or was refused.
    """

    image: PushedImage
    fate: Fate
    why: str
    size: int | None = None
    unseen: bool = False

    @property
    def is_condemned(self) -> bool:
        """Whether it is to be removed."""
        return self.fate is Fate.DELETE

    def kept(self, why: str, *, unseen: bool = False) -> "GcResult":
        """Give the verdict that it stays after all."""
        return replace(self, fate=Fate.KEEP, why=why, unseen=unseen)

    def as_document(self) -> Mapping[str, Any]:
        """Return plain data, for programs."""
        return {
            "image": str(self.image.image),
            "digest": self.image.digest,
            "driver": self.image.driver,
            "lastNeeded": self.image.last_needed.isoformat(),
            "size": self.size,
            "action": self.fate.value,
            "reason": self.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a repository has: the size of each tagged digest, and the names that lead to a digest.

    A name is a tag, or an index under a tag that lists the digest.
    """

    sizes: Mapping[str, int]
    names: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """``repositories`` are patterns of what is ours alone; ``blind`` says why the cluster was not seen whole."""

    repositories: tuple[str, ...]
    keep_days: int
    today: date
    blind: str = ""


def blindness(record: Record, forbidden: Iterable[str], today: date) -> str:
    """Return why record and snapshot do not say what is needed; empty if they do."""
    if refused := list(forbidden):
        return first_few(refused, 1)
    if record.observed is None:
        return "the controller has not recorded yet what is needed"
    if not record.is_current(today):
        return f"the controller recorded last on {record.observed} what is needed, and today is {today}"
    return ""


def by_need(record: Record, needed: Needed, rules: Rules) -> tuple[GcResult, ...]:
    """Judge every image by its repository and by who needed it when; of the rest the registry is asked."""
    return tuple(_by_need(image, needed, rules) for image in record.images)


def _by_need(image: PushedImage, needed: Needed, rules: Rules) -> GcResult:
    verdict = GcResult(image=image, fate=Fate.DELETE, why=f"not needed since {image.last_needed}")
    if not allows_repository(rules.repositories, image.image.host, image.image.repository):
        return verdict.kept("not in --gc-repositories")
    if why := needed.why(image):
        return verdict.kept(why)
    if rules.today - image.last_needed < timedelta(days=rules.keep_days):
        return verdict.kept(f"needed in the last {rules.keep_days} days")
    return verdict.kept(rules.blind, unseen=True) if rules.blind else verdict


def by_tags(verdicts: Iterable[GcResult], seen: Mapping[Place, Holdings | str]) -> tuple[GcResult, ...]:
    """Judge condemned images by what their repositories have; a text says why a repository could not be read."""
    return tuple(_by_tags(verdict, seen) if verdict.is_condemned else verdict for verdict in verdicts)


def _by_tags(verdict: GcResult, seen: Mapping[Place, Holdings | str]) -> GcResult:
    image = verdict.image
    held = seen[image.image.host, image.image.repository]
    if isinstance(held, str):
        return verdict.kept(held, unseen=True)
    others = sorted(held.names.get(image.digest, frozenset()) - {image.image.reference})
    if others:
        return verdict.kept(f"also named by {first_few(others, MOST_NAMED)}")
    return replace(verdict, size=held.sizes.get(image.digest))


def still_condemned(verdicts: Iterable[GcResult], later: Iterable[GcResult]) -> tuple[GcResult, ...]:
    """Keep what was needed again when the cluster was read a second time, because reading registries may take long."""
    kept = {verdict.image.key: verdict for verdict in later if not verdict.is_condemned}
    return tuple(kept.get(item.image.key, item) if item.is_condemned else item for item in verdicts)
