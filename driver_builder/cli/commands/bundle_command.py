"""The command ``bundle``: copies images into an OCI image layout, and with ``--import`` from one into a registry.

For clusters whose registry has no way to others. Images keep their bytes, digests, tags, bills of materials and
signatures.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from operator import itemgetter
from pathlib import Path

from driver_builder.api.driver_spec import DriverSpec, RegistrySettings
from driver_builder.base.errors import ConfigurationError, DriverBuilderError, TemporaryError
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, EXIT_TRY_AGAIN, add_output_flag
from driver_builder.cli.offline import docker_passwords
from driver_builder.config import Settings
from driver_builder.model import images
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.registry.given_objects import GivenObjects
from driver_builder.registry.layout_registry import LayoutRegistry
from driver_builder.registry.oci_layout import OciLayout, opened_layout, read_layout, ref_name
from driver_builder.registry.registry_access import PUSH_PATIENCE, Registries
from driver_builder.retention.needed import needed
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from driver_builder.targets.resolve_all import resolve_all

_HEADERS = ("IMAGE", "VERDICT", "DIGEST", "MESSAGE")
_SIGNATURE = re.compile(r":sha256-[0-9a-f]{64}\.sig$")
"""The tag of signatures, which go with their image."""
_SHORT_DIGEST = len("sha256:") + 12


class CopyOutcome(StrEnum):
    """What became of an image."""

    COPIED = "copied"
    PRESENT = "present"
    ABSENT = "absent"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One image: where it was copied to."""

    image: str
    verdict: CopyOutcome
    digest: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An image of a registry, under the tag that it has in the layout, and how that registry is reached.

    ``is_optional``: it may not exist.
    """

    image: ImageRef
    settings: RegistrySettings
    digest: str = ""
    is_optional: bool = False


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``bundle``."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="the OCI image layout")
    parser.add_argument(
        "image", nargs="*", metavar="IMAGE", help="images to copy into it, as HOST/REPOSITORY:TAG: those of programs"
    )
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="also copy the images of all drivers in a file of driver-builder snapshot",
    )
    parser.add_argument(
        "--toolchains",
        action="store_true",
        help="with --snapshot: also copy the toolchains of the drivers' kernels, as far as there are any",
    )
    parser.add_argument(
        "--import", action="store_true", dest="is_import", help="push everything in DIR instead, as it was"
    )
    parser.add_argument(
        "--registry",
        metavar="HOST[/PATH]",
        default="",
        help="with --import: push to this registry, below PATH (default: the registries that the images are from)",
    )
    parser.add_argument("--registry-plain-http", action="store_true", help="connect to the registries without TLS")
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="passwords of registries (default: config.json in DOCKER_CONFIG, else in ~/.docker)",
    )
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Copy, and print what became of each image; 3 where running again may help.

    Raises:
        ConfigurationError: the command line is wrong, or the folder is no layout.
    """
    _check(flags)
    accounts, _ = docker_passwords.accounts(settings.registry_config, GivenObjects())
    registries = Registries(GivenObjects(), accounts=accounts, **common.registry_options(settings, local=True))
    copies = _import(read_layout(flags.folder), registries, flags) if flags.is_import else _export(flags, registries)
    results, code = [], EXIT_OK
    try:
        for result, temporary in copies:
            results.append(result)
            if result.verdict is CopyOutcome.FAILED:
                code = EXIT_FAILED if code == EXIT_OK else code
            if temporary:
                # What was copied is there: the next run goes on from it.
                code = EXIT_TRY_AGAIN
                break
    finally:
        output.progress("")
    _print(results, flags.output)
    return code


_Results = Iterator[tuple[Copied, bool]]


def _check(flags: argparse.Namespace) -> None:
    if flags.is_import and (flags.image or flags.snapshot):
        raise ConfigurationError("--import pushes everything in DIR: leave out IMAGE and --snapshot")
    if not flags.is_import and flags.registry:
        raise ConfigurationError("--registry says where --import pushes to")
    if flags.toolchains and not flags.snapshot:
        raise ConfigurationError("--toolchains: give --snapshot, which says for which kernels")
    if not flags.is_import and not flags.image and not flags.snapshot:
        raise ConfigurationError("nothing to copy: give IMAGE or --snapshot, or --import")


def _export(flags: argparse.Namespace, registries: Registries) -> _Results:
    wanted = list(dict.fromkeys(_wanted(flags)))
    with opened_layout(flags.folder) as layout:
        for number, item in enumerate(wanted, start=1):
            output.progress(f"{number}/{len(wanted)} {item.image}")
            yield _result(str(item.image), partial(_pull, item, layout, registries))


def _wanted(flags: argparse.Namespace) -> Iterator[_Wanted]:
    plain = RegistrySettings(plain_http=flags.registry_plain_http)
    for text in flags.image:
        yield _Wanted(_parsed(text), plain)
    if not flags.snapshot:
        return
    snapshot, known_settings = common.read_snapshot(flags.snapshot)
    specs = {driver.key: driver.spec for driver in snapshot.drivers if isinstance(driver.spec, DriverSpec)}
    states = {
        image: state for known in (*snapshot.images_of.values(), snapshot.images) for image, state in known.items()
    }
    for image, state in sorted(states.items(), key=itemgetter(0)):
        owner = DriverKey(state.labels.get(images.DRIVER_LABEL, "") if isinstance(state, Present) else "")
        if isinstance(state, Present):
            known = specs[owner].registry if owner in specs else plain
            is_plain = known.plain_http or plain.plain_http
            yield _Wanted(image, replace(plain, plain_http=is_plain), state.digest)
    if flags.toolchains:
        yield from _toolchains(snapshot, known_settings.template_versions, plain)


def _toolchains(snapshot: Snapshot, versions: TemplateVersions, plain: RegistrySettings) -> Iterator[_Wanted]:
    """The toolchains of all kernels for which a driver of the snapshot is wanted, in the order of their names."""
    specs = [driver.spec for driver in snapshot.drivers if isinstance(driver.spec, DriverSpec)]
    without_tls = {(spec.image.host, spec.image.repository) for spec in specs if spec.registry.plain_http}
    for image in sorted(needed(snapshot, resolve_all(snapshot, versions), versions).toolchains):
        is_plain = plain.plain_http or (image.host, image.repository) in without_tls
        yield _Wanted(image, replace(plain, plain_http=is_plain), is_optional=True)


def _pull(item: _Wanted, layout: OciLayout, registries: Registries) -> tuple[str, bool]:
    from driver_builder.registry.image_copy import ImagePlace, copy_image  # noqa: PLC0415 - cryptography needs 7 MiB

    image = item.image
    registry = registries.connect("", item.settings, image.host, image.repository, patience=PUSH_PATIENCE)
    target = ImagePlace(LayoutRegistry(layout, image.host), image.repository)
    if item.is_optional and registry.manifest(image.repository, image.reference) is None:
        return "", False
    return copy_image(
        ImagePlace(registry, image.repository), target, item.digest or image.reference, tag=image.reference
    )


def _import(layout: OciLayout, registries: Registries, flags: argparse.Namespace) -> _Results:
    names = [name for entry in layout.entries() if (name := ref_name(entry)) and not _SIGNATURE.search(name)]
    settings = RegistrySettings(plain_http=flags.registry_plain_http)
    for number, name in enumerate(names, start=1):
        output.progress(f"{number}/{len(names)} {name}")
        yield _result(name, partial(_push, name, layout, registries, settings, flags.registry))


def _push(
    name: str, layout: OciLayout, registries: Registries, settings: RegistrySettings, to: str
) -> tuple[str, bool]:
    from driver_builder.registry.image_copy import ImagePlace, copy_image  # noqa: PLC0415 - as in _pull

    image = _parsed(name)
    target = moved(image, to)
    registry = registries.connect("", settings, target.host, target.repository, patience=PUSH_PATIENCE)
    is_digest = image.reference.startswith("sha256:")
    return copy_image(
        ImagePlace(LayoutRegistry(layout, image.host), image.repository),
        ImagePlace(registry, target.repository),
        image.reference,
        tag="" if is_digest else image.reference,
    )


def moved(image: ImageRef, to: str) -> ImageRef:
    """Return an image's place in another registry, below a path there; its own without one. Pure."""
    if not to:
        return image
    host, _, path = to.strip("/").partition("/")
    return ImageRef(host, f"{path}/{image.repository}" if path else image.repository, image.reference)


def _parsed(text: str) -> ImageRef:
    try:
        return images.parse_full_reference(text)
    except ValueError as error:
        raise ConfigurationError(f"IMAGE: {error}") from error


def _result(name: str, copy: Callable[[], tuple[str, bool]]) -> tuple[Copied, bool]:
    """Copy one image; also returns whether it failed for something that may pass."""
    try:
        digest, is_new = copy()
    except DriverBuilderError as error:
        return Copied(image=name, verdict=CopyOutcome.FAILED, message=str(error)), isinstance(error, TemporaryError)
    verdict = CopyOutcome.COPIED if is_new else CopyOutcome.PRESENT if digest else CopyOutcome.ABSENT
    return Copied(image=name, verdict=verdict, digest=digest), False


def _print(results: Iterable[Copied], form: str) -> None:
    if form != "table":
        print(output.document([asdict(result) | {"verdict": result.verdict.value} for result in results], form))
        return
    rows = [(item.image, item.verdict, item.digest[:_SHORT_DIGEST] or "-", item.message) for item in results]
    print(output.table(_HEADERS, rows) if rows else "no images")
