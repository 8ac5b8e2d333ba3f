"""The files of a driver image that matter: modules, firmware and user space, each with its digest.

Place in the flow: ``pipeline`` reads them once of an image that is to be pushed, for ``provenance`` and ``sbom``. The
indexes of depmod follow from the modules.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum, auto

from driver_builder.archives.image_archive import ImageArchive, sha256
from driver_builder.archives.image_files import ImageFile
from driver_builder.model.userspace import FOLDER
from driver_builder.modules.kernel_module import parse_kernel_module
from driver_builder.modules.module_files import size_limit

FIRMWARE = "/firmware/"

_MODULE = re.compile(r"/lib/modules/.+\.ko(?:\.(?:gz|xz))?")


class Kind(Enum):
    """What a file is."""

    MODULE = auto()
    FIRMWARE = auto()
    USERSPACE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One file: ``sha256`` in hex; ``license`` is what a module says."""

    kind: Kind
    path: str
    sha256: str
    version: str = ""
    license: str = ""
    comment: str = ""


def image_contents(image: ImageArchive) -> tuple[Content, ...]:
    """What lies in an image, sorted by path.

    Raises:
        VerificationFailed: the image has more than is read of one.
        InvalidModule: a module cannot be read, which ``verify`` has ruled out for those of the image's kernel.
    """
    found = (_content(file) for file in image.files("/"))
    return tuple(sorted((content for content in found if content), key=lambda content: content.path))


def _content(file: ImageFile) -> Content | None:
    if _MODULE.fullmatch(file.path):
        return _module(file)
    if file.path.startswith(FIRMWARE):
        return Content(kind=Kind.FIRMWARE, path=file.path, sha256=file.sha256())
    if file.path.startswith(f"{FOLDER}/"):
        return Content(kind=Kind.USERSPACE, path=file.path, sha256=file.sha256())
    return None


def _module(file: ImageFile) -> Content:
    content = file.read(size_limit(file.path))
    module = parse_kernel_module(content, file.path)
    return Content(
        kind=Kind.MODULE,
        path=file.path,
        sha256=_hex(content),
        version=module.version,
        license=module.license,
        comment=(
            f"kernel module {module.name}: srcversion {module.srcversion or 'none'}, build id"
            f" {module.build_id or 'none'}, vermagic {module.vermagic.strip()!r},"
            f" MODULE_LICENSE({json.dumps(module.license)})"
        ),
    )


def _hex(content: bytes) -> str:
    return sha256(content).removeprefix("sha256:")
