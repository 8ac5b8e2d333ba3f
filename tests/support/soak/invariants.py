"""What must hold all the while, of what was seen: histories in, violations in words out. Pure.

The API server's versions order all that is seen of it, whichever watch told: a ``version`` is one of its numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from driver_builder.objects import slots
from driver_builder.objects.slots import Place
from tests.support.soak.controllers import Ended, Said

Face = TypeVar("Face")


@dataclass(frozen=True, slots=True)
class At(Generic[Face]):
    """How something was from a version on; None: it is gone."""

    version: int
    face: Face | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFace:
    """A node: boot and kernel (``place``), ready label, where that was proven, requested rebuild, label of a wave.

    ``is_tainted``: it has the taint of a node where the driver is not proven.
    """

    place: str
    ready: str | None
    proven_on: str
    request: str = ""
    wave: str = ""
    is_tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFace:
    """A driver pod: its node, its DaemonSet's target, what it has, and on which boot and kernel it proved that.

    ``refuted_on`` is where it said that the driver does not work.
    """

    node: str
    target: str
    fingerprint: str
    proven_on: str
    is_deleted: bool
    refuted_on: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFace:
    """A pull pod: its node, the image that it brings, and whether a container has run with that."""

    node: str
    digest: str
    has_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFace:
    """A DaemonSet: its target, and what its pods are to have.

    ``kept`` are other fingerprints that pods may have, ``modules`` the identities that they have to find. ``place``
    says which nodes of the target it is for in a wave.
    """

    target: str
    kernel: str
    fingerprint: str
    version: str
    rebuild: str
    digest: str
    kept: frozenset[str] = frozenset()
    modules: frozenset[tuple[str, str]] = frozenset()
    place: Place = Place.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFace:
    """A driver: when requests of nodes were acknowledged last, by target."""

    uid: str
    heard: Mapping[str, float]


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


def lost_labels(nodes: History[NodeFace], pods: History[PodFace], absences: Iterable[range] = ()) -> Iterator[str]:
    """Find ready labels that went though the node is on the boot and kernel that they were proven on.

    Causes are that a pod said otherwise, and that there was no driver, at ``absences``.
    """
    for name, history in nodes.items():
        set_at = 0
        for version, before, now in _changes(history):
            if before is None or before.ready is None:
                set_at = version
            if before is None or now is None or before.ready is None or now.ready is not None:
                continue
            is_refuted = _is_refuted(name, now.place, pods, range(set_at, version))
            is_absent = any(version in absence for absence in absences)
            if before.place == now.place == before.proven_on and not (is_refuted or is_absent):
                yield f"{name} lost its ready label ({before.ready}), and is on {now.place!r} still"


def wrong_taints(nodes: History[NodeFace], absences: Iterable[range] = ()) -> Iterator[str]:
    """Find taints of nodes where the driver had worked on that boot, second ones, and those that went without a proof.

    A driver that was deleted, at ``absences``, begins anew.
    """
    absences = tuple(absences)
    for name, history in nodes.items():
        worked: set[tuple[str, int]] = set()
        tainted: set[tuple[str, int]] = set()
        for version, before, now in _changes(history):
            if now is None:
                continue
            place = now.place, sum(version >= absence.stop for absence in absences)
            was_tainted = before is not None and before.is_tainted
            is_proven = now.ready is not None and now.proven_on == now.place
            is_absent = any(version in absence for absence in absences)
            if now.is_tainted and not was_tainted:
                if place in worked:
                    yield f"{name} was tainted at {version}, and the driver had worked on {now.place!r}"
                if place in tainted:
                    yield f"{name} was tainted at {version} once more on {now.place!r}"
                tainted.add(place)
            if was_tainted and not (now.is_tainted or is_proven or is_absent):
                yield f"{name} lost its taint at {version}, and no driver is proven on {now.place!r}"
            if is_proven:
                worked.add(place)


def _is_refuted(node: str, place: str, pods: History[PodFace], versions: range) -> bool:
    """Tell whether a pod said at one of these versions that the driver does not work at a place of its node."""
    faces = (
        face
        for history in pods.values()
        for face in (at(history, versions.start), *(item.face for item in history if item.version in versions))
    )
    return any(face is not None and (face.node, face.refuted_on) == (node, place) for face in faces)


def _changes(history: Iterable[At[Face]]) -> Iterator[tuple[int, Face | None, Face | None]]:
    before: Face | None = None
    for item in history:
        yield item.version, before, item.face
        before = item.face


def harmed_pods(
    pods: History[PodFace], nodes: History[NodeFace], sets: Mapping[str, Sequence[At[SetFace]]]
) -> Iterator[str]:
    """Find pods that were deleted though they worked: on their boot and kernel, and as their DaemonSet wants them.

    A pod that is older than its node's request for a rebuild is replaced, and no other one is.
    """
    for name, version, pod, _, wanted in _deletions(pods, nodes, sets):
        until_then = [item for item in nodes.get(pod.node, ()) if item.version < version]
        if pod.fingerprint in {wanted.fingerprint, *wanted.kept} and not is_older_than_request(pods[name], until_then):
            yield f"pod {name} on {pod.node} was deleted at {version}, and nothing else was wanted there"


def unpulled_images(
    pods: History[PodFace],
    nodes: History[NodeFace],
    sets: Mapping[str, Sequence[At[SetFace]]],
    pulls: History[PullFace],
) -> Iterator[str]:
    """Find working pods of ready nodes that were deleted for an image with which no container had run there."""
    ran = [(item.version, item.face) for history in pulls.values() for item in history if item.face is not None]
    for name, version, pod, node, wanted in _deletions(pods, nodes, sets):
        # Only what is labelled was seen to work.
        if pod.digest == wanted.digest or node.ready is None or node.proven_on != node.place:
            continue
        next_one = PullFace(node=pod.node, digest=wanted.digest, has_run=True)
        if not any(face == next_one and at_version < version for at_version, face in ran):
            yield f"pod {name} on {pod.node} was deleted at {version}, and {wanted.digest} was not there"


def _deletions(
    pods: History[PodFace], nodes: History[NodeFace], sets: Mapping[str, Sequence[At[SetFace]]]
) -> Iterator[tuple[str, int, PodFace, NodeFace, SetFace]]:
    """Give working pods that were deleted, at which version, and node and DaemonSet as they were before."""
    for name, history in pods.items():
        for version, before, now in _changes(history):
            if before is None or before.is_deleted or not (now is None or now.is_deleted):
                continue
            # What its deletion is about was there before it.
            node = at(nodes.get(before.node, ()), version - 1)
            wanted = wanted_on(node, before.target, {name: at(found, version - 1) for name, found in sets.items()})
            works = node is not None and before.proven_on == node.place and not before.refuted_on
            if node is not None and wanted is not None and works:
                yield name, version, before, node, wanted


def wanted_on(node: NodeFace | None, target: str, sets: Mapping[str, SetFace | None]) -> SetFace | None:
    """Give the DaemonSet that a node of a target belongs to: in a wave the node's label names it, or another one."""
    own = sets.get(target)
    if own is None or node is None or own.place is Place.ALL:
        return own
    bare, slot = slots.parse_name(target)
    other = slots.name_in(bare, slots.other(slot))
    is_own = node.wave == target if own.place is Place.MOVED else node.wave != other
    return own if is_own else sets.get(other)


def is_older_than_request(pod: Sequence[At[PodFace]], node: Sequence[At[NodeFace]]) -> bool:
    """Tell whether a pod was there before its node requested the last rebuild."""
    requested = [version for version, before, now in _changes(node) if _request(now) not in ("", _request(before))]
    return bool(requested) and pod[0].version < requested[-1]


def _request(face: NodeFace | None) -> str:
    return face.request if face is not None else ""


def needless_changes(
    sets: Mapping[str, Sequence[At[SetFace]]], requests: int, requests_of_nodes: int = 0
) -> Iterator[str]:
    """Find DaemonSets that want something else of their nodes without another version or a requested rebuild.

    A rebuild that a node requests makes another image, and leaves what the other nodes have.
    """
    rebuilds = {item.face.rebuild for history in sets.values() for item in history if item.face} - {""}
    if len(rebuilds) > requests:
        yield f"{requests} rebuilds were requested, and DaemonSets were made for {len(rebuilds)}"
    for target, history in sets.items():
        wanted, images = defaultdict(set), defaultdict(set)
        for item in history:
            if item.face is not None:
                wanted[item.face.version, item.face.rebuild].add(item.face.fingerprint)
                images[item.face.version, item.face.rebuild].add(item.face.digest)
        for (version, _), found in wanted.items():
            if len(found) > 1:
                yield f"the DaemonSet of {target} wanted {len(found)} things of version {version}: {sorted(found)}"
        for (version, _), found in images.items():
            if len(found) > 1 + requests_of_nodes:
                yield f"the DaemonSet of {target} had {len(found)} images of version {version}: {sorted(found)}"


def unknown_images(sets: Mapping[str, Sequence[At[SetFace]]], digests: Set[str]) -> Iterator[str]:
    """Find DaemonSets with an image that was never tagged."""
    for target, history in sets.items():
        for item in history:
            if item.face is not None and item.face.digest not in digests:
                yield f"the DaemonSet of {target} has {item.face.digest}, which was never tagged"


def wrong_modules(
    sets: Mapping[str, Sequence[At[SetFace]]], modules: Mapping[str, Set[tuple[str, str]]]
) -> Iterator[str]:
    """Find DaemonSets that expect other modules than their image has; ``modules`` are those of images by digest."""
    for target, history in sets.items():
        for item in history:
            if item.face is not None and item.face.modules != modules.get(item.face.digest, item.face.modules):
                yield f"the DaemonSet of {target} expects {sorted(item.face.modules)} of {item.face.digest}"


def hurried_rebuilds(drivers: History[DriverFace], seconds: float) -> Iterator[str]:
    """Find targets whose nodes were heard again before so many ``seconds`` had gone by; a clock may be set back."""
    for history in drivers.values():
        for _, before, now in _changes(history):
            if before is None or now is None or before.uid != now.uid:
                continue
            for target, at_now in now.heard.items():
                if 0 < at_now - before.heard.get(target, at_now) < seconds:
                    yield f"nodes of {target} were heard at {before.heard[target]:.0f}, and again at {at_now:.0f}"


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
