"""The user space of a driver: ``spec.userspace``, pinned, with what its version is read from. Pure."""

from driver_builder.api.driver_spec import UserspaceSettings
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import (
    ARCHIVE_URL,
    PACKAGE,
    PACKAGE_VERSION,
    RELATIVE_PATH,
    SHA256,
    SIZE,
    USERSPACE_HOST_PATH,
)
from driver_builder.model import quantities
from driver_builder.model.userspace import DEFAULT_SIZE, MAX_SIZE, Userspace, UserspaceArchive, UserspacePackages
from kube_api.text import first_few

MAX_PACKAGES = 32
_LEAST_SIZE = 1 << 20
_SHOWN = 3


def read_userspace(spec: Reader) -> UserspaceSettings | None:
    """Read ``spec.userspace``; None where it is not given."""
    userspace = spec.object("userspace")
    if not spec.has("userspace"):
        return None
    archive, _ = userspace.object("archive"), userspace.raw("packages")
    if userspace.has("archive") == userspace.has("packages"):
        userspace.wrong("exactly one of archive, packages is needed")
    version_file = userspace.text("versionFile", RELATIVE_PATH) or ""
    if userspace.has("archive") and not userspace.has("versionFile"):
        userspace.wrong(
            "is missing: name the file of the archive with the driver's version in its first line, "
            "or a library that has it in its name, such as lib/libedu.so.1.2.3",
            "versionFile",
        )
    return UserspaceSettings(
        build=Userspace(
            content=_archive(archive)
            if userspace.has("archive")
            else _packages(userspace, is_versioned=bool(version_file)),
            version_file=version_file,
            size_limit=_size(userspace),
        ),
        host_path=userspace.text("hostPath", USERSPACE_HOST_PATH),
    )


def _archive(archive: Reader) -> UserspaceArchive:
    return UserspaceArchive(
        url=archive.needed("url", ARCHIVE_URL),
        sha256=archive.needed("sha256", SHA256),
        path=archive.text("path", RELATIVE_PATH) or "",
    )


def _packages(userspace: Reader, *, is_versioned: bool) -> UserspacePackages:
    items = userspace.objects("packages", most=MAX_PACKAGES)
    pins = [(item.needed("name", PACKAGE), item.needed("version", PACKAGE_VERSION)) for item in items]
    packages = UserspacePackages(pins=tuple(pins))
    if not pins:
        userspace.wrong("name at least one package", "packages")
    if len(packages.versions) > 1 and not is_versioned:
        userspace.wrong(
            f"they have different versions, {first_few(packages.versions, _SHOWN)}: take all from one release of the "
            "driver, or name the file with its version in versionFile",
            "packages",
        )
    return packages


def _size(userspace: Reader) -> int:
    text = userspace.text("sizeLimit", SIZE)
    if text is None:
        return DEFAULT_SIZE
    size = int(quantities.amount(text))
    if not _LEAST_SIZE <= size <= MAX_SIZE:
        userspace.wrong(f"{text!r} is too small or too large: write a size from 1Mi to 4Gi", "sizeLimit")
    return size
