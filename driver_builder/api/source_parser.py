"""Where a driver's source comes from: ``spec.source``, exactly one kind, each pinned. Pure."""

from collections.abc import Callable, Mapping

from driver_builder.api.driver_spec import ConfigMapSource, SourceSpec
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import (
    ABSOLUTE_PATH,
    ARCHIVE_URL,
    COMMIT,
    GIT_URL,
    OBJECT_NAME,
    PACKAGE,
    PACKAGE_VERSION,
    PINNED_IMAGE,
    RELATIVE_PATH,
    SHA256,
)
from driver_builder.model.build import SourceArchive, SourceGit, SourceImage, SourcePackage


def read_source(source: Reader) -> SourceSpec | None:
    """Read ``spec.source``; None if the reader has noted a problem."""
    given = [kind for kind in source.given if source.has(kind)]
    if len(given) != 1:
        source.wrong(f"exactly one of {', '.join(KINDS)} is needed, given: {', '.join(map(str, given)) or 'none'}")
        source.asked.update(KINDS)
        return None
    (kind,) = given
    if kind not in KINDS:
        source.asked.add(kind)
        source.wrong(f"{kind!r} is unknown: use one of {', '.join(KINDS)}")
        return None
    return KINDS[kind](source.object(kind))


def _config_map(fields: Reader) -> ConfigMapSource:
    return ConfigMapSource(name=fields.needed("name", OBJECT_NAME))


def _image(fields: Reader) -> SourceImage:
    return SourceImage(
        reference=fields.needed("reference", PINNED_IMAGE), path=fields.text("path", ABSOLUTE_PATH) or "/"
    )


def _git(fields: Reader) -> SourceGit:
    return SourceGit(
        url=fields.needed("url", GIT_URL),
        commit=fields.needed("commit", COMMIT),
        path=fields.text("path", RELATIVE_PATH) or "",
    )


def _archive(fields: Reader) -> SourceArchive:
    return SourceArchive(
        url=fields.needed("url", ARCHIVE_URL),
        sha256=fields.needed("sha256", SHA256),
        path=fields.text("path", RELATIVE_PATH) or "",
    )


def _package(fields: Reader) -> SourcePackage:
    return SourcePackage(name=fields.needed("name", PACKAGE), version=fields.text("version", PACKAGE_VERSION))


KINDS: Mapping[str, Callable[[Reader], SourceSpec]] = {
    "configMap": _config_map,
    "image": _image,
    "git": _git,
    "archive": _archive,
    "package": _package,
}
"""Every kind of source, by its field."""
