"""What must hold all the while, of what was seen: histories in, violations in words out. Pure.

The API server's versions order all that is seen of it, whichever watch told: a ``version`` is one of its numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.support.soak.controllers import Ended, Said

Face = TypeVar("Face")


@dataclass(frozen=True, slots=True)
class At(Generic[Face]):
    """How something was from a version on; None: it is gone."""

    version: int
    face: Face | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFace:
    """A node: its boot and kernel (``place``), its ready label, and where that was proven."""

    place: str
    ready: str | None
    proven_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFace:
    """A driver pod: its node, its DaemonSet's target, what it has, and on which boot and kernel it proved that."""

    node: str
    target: str
    fingerprint: str
    proven_on: str
    is_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFace:
    """A DaemonSet: its target, and what its pods are to have."""

    target: str
    kernel: str
    fingerprint: str
    version: str
    rebuild: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A tag that the registry took: the version in it and the build key."""

    at: float
    tag: str
    digest: str

    @property
    def key(self) -> str:
        """The build key."""
        return self.tag.rpartition("-")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build as a controller's life told of it: ``end`` is when it ended, or when it was last heard of."""

    key: str
    controller: str
    life: int
    began: float
    end: float
    is_real: bool
    """Whether anything was built: the tag may have been there already."""
    is_verified: bool


History = Mapping[str, Sequence[At[Face]]]


def at(history: Iterable[At[Face]], version: int) -> Face | None:
    """Say how something was at a version."""
    known = [item.face for item in history if item.version <= version]
    return known[-1] if known else None


def last(history: Sequence[At[Face]]) -> Face | None:
    """Say how something is now."""
    return history[-1].face if history else None


def unproven_labels(nodes: History[NodeFace], proofs: Set[tuple[str, str]]) -> Iterator[str]:
    """Find ready labels that were set, or moved to another boot, without a pod's proof on that boot and kernel."""
    for name, history in nodes.items():
        for _, before, now in _changes(history):
            if now is None or now.ready is None:
                continue
            is_new = before is None or (before.ready, before.proven_on) != (now.ready, now.proven_on)
            if is_new and (name, now.proven_on) not in proofs:
                yield f"{name} is ready ({now.ready}) on {now.proven_on!r}, which no pod proved"


def lost_labels(nodes: History[NodeFace]) -> Iterator[str]:
    """Find ready labels that went though the node is on the boot and kernel that they were proven on."""
    for name, history in nodes.items():
        for _, before, now in _changes(history):
            if before is None or now is None or before.ready is None or now.ready is not None:
                continue
            if before.place == now.place == before.proven_on:
                yield f"{name} lost its ready label ({before.ready}), and is on {now.place!r} still"


def _changes(history: Iterable[At[Face]]) -> Iterator[tuple[int, Face | None, Face | None]]:
    before: Face | None = None
    for item in history:
        yield item.version, before, item.face
        before = item.face


def harmed_pods(
    pods: History[PodFace], nodes: History[NodeFace], sets: Mapping[str, Sequence[At[SetFace]]]
) -> Iterator[str]:
    """Find pods that were deleted though they worked: on their boot and kernel, and as their DaemonSet wants them."""
    for name, history in pods.items():
        for version, before, now in _changes(history):
            if before is None or before.is_deleted or not (now is None or now.is_deleted):
                continue
            # What its deletion is about was there before it.
            node = at(nodes.get(before.node, ()), version - 1)
            wanted = at(sets.get(before.target, ()), version - 1)
            works = node is not None and before.proven_on == node.place
            if works and wanted is not None and wanted.fingerprint == before.fingerprint:
                yield f"pod {name} on {before.node} was deleted at {version}, and nothing else was wanted there"


def needless_changes(sets: Mapping[str, Sequence[At[SetFace]]], requests: int) -> Iterator[str]:
    """Find DaemonSets that want something else of their nodes without another version or a requested rebuild."""
    rebuilds = {item.face.rebuild for history in sets.values() for item in history if item.face} - {""}
    if len(rebuilds) > requests:
        yield f"{requests} rebuilds were requested, and DaemonSets were made for {len(rebuilds)}"
    for target, history in sets.items():
        wanted = defaultdict(set)
        for item in history:
            if item.face is not None:
                wanted[item.face.version, item.face.rebuild].add((item.face.fingerprint, item.face.digest))
        for (version, _), found in wanted.items():
            if len(found) > 1:
                yield f"the DaemonSet of {target} wanted {len(found)} things of version {version}: {sorted(found)}"


def unknown_images(sets: Mapping[str, Sequence[At[SetFace]]], digests: Set[str]) -> Iterator[str]:
    """Find DaemonSets with an image that was never tagged."""
    for target, history in sets.items():
        for item in history:
            if item.face is not None and item.face.digest not in digests:
                yield f"the DaemonSet of {target} has {item.face.digest}, which was never tagged"


def builds_of(said: Iterable[Said], ended: Iterable[Ended]) -> list[Build]:
    """Put together what controllers told of builds."""
    killed = {(item.controller, item.life): item.at for item in ended if item.why == "killed"}
    lines: dict[tuple[str, int, str], list[list[Said]]] = defaultdict(list)
    for line in sorted(said, key=lambda line: line.at):
        told = lines[line.controller, line.life, line.key]
        if line.text.startswith("starting "):
            told.append([])
        if told:
            told[-1].append(line)
    found = [_build(part, killed.get(who[:2])) for who, parts in lines.items() for part in parts]
    return sorted(found, key=lambda build: build.began)


def _build(lines: Sequence[Said], killed: float | None) -> Build:
    first, last = lines[0], lines[-1]
    return Build(
        key=first.key,
        controller=first.controller,
        life=first.life,
        began=first.at,
        end=last.at if killed is None else min(last.at, killed),
        is_real=any(line.text.startswith("Step ") for line in lines),
        is_verified=any(line.text.startswith("verified ") for line in lines),
    )


def built_again(builds: Iterable[Build], pushed: Sequence[Pushed]) -> Iterator[str]:
    """Find keys that were built though their image was tagged."""
    tagged = {item.key: item.at for item in reversed(pushed)}
    for build in builds:
        if build.is_real and build.began > tagged.get(build.key, build.began):
            yield f"{build.key} was built again by {build.controller} in life {build.life}, after it was tagged"


def built_twice_at_once(builds: Sequence[Build], ended: Sequence[Ended]) -> Iterator[str]:
    """Find builds of a key that ran side by side though nobody had been killed, stopped or lost the Lease."""
    for number, first in enumerate(builds):
        for second in builds[number + 1 :]:
            if first.key != second.key or not (first.is_real and second.is_real) or second.began >= first.end:
                continue
            is_same = (first.controller, first.life) == (second.controller, second.life)
            was_off = any((item.controller, item.life) == (first.controller, first.life) for item in ended)
            if is_same or not was_off:
                yield f"{first.key} was built twice at once, by {first.controller} and {second.controller}"


def unverified_pushes(builds: Iterable[Build], pushed: Iterable[Pushed]) -> Iterator[str]:
    """Find tags whose image nobody said to have verified."""
    verified = {build.key for build in builds if build.is_verified}
    for item in pushed:
        if item.key not in verified:
            yield f"{item.tag} was tagged, and nobody verified it"


def moved_tags(pushed: Iterable[Pushed]) -> Iterator[str]:
    """Find tags that name another image than before."""
    digests = defaultdict(set)
    for item in pushed:
        digests[item.tag].add(item.digest)
    for tag, found in digests.items():
        if len(found) > 1:
            yield f"{tag} was moved: {sorted(found)}"


def growth(resident: Sequence[float]) -> float:
    """Return by how much the memory at the last third of checkpoints is above that at the first third.

    Of each third the median counts.
    """
    third = len(resident) // 3
    if not third:
        return 0.0
    first, last_ones = sorted(resident[:third]), sorted(resident[-third:])
    return last_ones[third // 2] - first[third // 2]
