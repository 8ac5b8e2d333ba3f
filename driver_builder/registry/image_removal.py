"""What a repository has under its tags, and the removal of an image with all that refers to it.

Place in the flow: ``driver-builder gc`` reads a repository before it decides, and removes what it decided. The image
goes first: one that stays has its documents. What is left of an image after an interruption is found by its digest the
next time. Errors are those of ``ImageStore``.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.image_store import Manifest
from driver_builder.registry.referrers import fallback_tag
from driver_builder.registry.registry import RegistryClient, descriptor_digests

MAX_TAGS = 5000
"""Each tag costs a request."""
_SUFFIXES = ("", ".sig", ".att", ".sbom")
"""Of the tags ``sha256-<hex>``: the list of referrers, and what cosign keeps beside an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedManifest:
    """What a tag names; ``listed`` are the digests in an index."""

    digest: str
    size: int | None = None
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedManifests:
    """All tags of a repository, each with what it names."""

    tags: Mapping[str, TaggedManifest] = field(default_factory=dict)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of each image, by digest, where they are known."""
        return {found.digest: found.size for found in self.tags.values() if found.size is not None}

    @property
    def names(self) -> Mapping[str, frozenset[str]]:
        """The tags that name a digest, or an index that lists it."""
        names: dict[str, set[str]] = {}
        for tag, found in self.tags.items():
            for digest in (found.digest, *found.listed):
                names.setdefault(digest, set()).add(tag)
        return {digest: frozenset(tags) for digest, tags in names.items()}


def read_tags(registry: RegistryClient, repository: str) -> TaggedManifests:
    """Read what every tag of a repository names."""
    tags = registry.tags(repository)
    if len(tags) > MAX_TAGS:
        raise RegistryRefused(f"{repository} has {len(tags)} tags, more than the {MAX_TAGS} that are read")
    found = {tag: registry.manifest(repository, tag) for tag in tags}
    # A tag that went meanwhile names nothing.
    return TaggedManifests(tags={tag: _tagged(named) for tag, named in found.items() if named is not None})


def documents_of(
    registry: RegistryClient, repository: str, digest: str, tagged: TaggedManifests, *, protected: Container[str] = ()
) -> tuple[str, ...]:
    """Find the digests of what belongs to an image: bill of materials, log, signatures, and their list.

    What has a tag of its own besides stays, and so does what is ``protected``: anybody who may push can put a tag of
    this kind on another image, or list it.
    """
    own = {fallback_tag(digest) + suffix for suffix in _SUFFIXES}
    under = [tagged.tags[tag] for tag in sorted(own & tagged.tags.keys())]
    listed = (*registry.referrers(repository, digest), *(item for found in under for item in found.listed))
    referring = (item for item in listed if _refers(registry, repository, item, digest))
    names = tagged.names
    return tuple(
        item
        for item in dict.fromkeys((*referring, *(found.digest for found in under)))
        if names.get(item, frozenset()) <= own and item != digest and item not in protected
    )


def remove(registry: RegistryClient, repository: str, digest: str, tagged: TaggedManifests) -> bool:
    """Remove a manifest and the tags that name it; False where nothing of it was there.

    Most registries remove the tags by themselves. Those that keep them, as crane's, still have the image under each.
    """
    was_there = registry.delete_manifest(repository, digest)
    for tag in sorted(tag for tag, found in tagged.tags.items() if found.digest == digest):
        # Another image may have got the tag meanwhile.
        left = registry.manifest(repository, tag)
        if left is not None and left.digest == digest:
            was_there |= registry.delete_manifest(repository, tag)
    return was_there


def _refers(registry: RegistryClient, repository: str, item: str, digest: str) -> bool:
    subject = (registry.fetch_manifest(repository, item) or {}).get("subject")
    return isinstance(subject, dict) and subject.get("digest") == digest


def _tagged(named: Manifest) -> TaggedManifest:
    digest, manifest = named.digest, named.document
    if "manifests" in manifest:
        return TaggedManifest(digest=digest, listed=descriptor_digests(manifest))
    config, layers = manifest.get("config"), manifest.get("layers")
    parts = [config, *layers] if isinstance(layers, list) else [config]
    sizes = [part.get("size") for part in parts if isinstance(part, dict)]
    return TaggedManifest(digest=digest, size=sum(size for size in sizes if isinstance(size, int)))
