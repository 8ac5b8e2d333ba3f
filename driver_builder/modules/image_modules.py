"""The modules of an image, and the indexes beside them: read one after the other, within bounds.

Place in the flow: ``verify`` and ``exported_symbols`` call it. Of a module, only its description is kept, not its
file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module
from driver_builder.modules.module_files import module_name, size_limit

INDEXES = ("modules.dep", "modules.alias")
MAX_INDEX = 1 << 20
"""Bytes of an index. Those of all modules of Debian's kernel, some thousand, have about so many."""
MAX_MODULES = 1000
"""A driver has one to some dozen; Debian's kernel has 4,000, which no driver replaces."""
MAX_WORDS = 64 << 20
"""Bytes of the descriptions of all modules: a driver's imports and aliases have some hundred kilobytes."""
_WORD_COST = 64
"""Bytes that Python needs for a word besides its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModules:
    """``modules`` and ``indexes`` by absolute path."""

    modules: Mapping[str, KernelModule]
    indexes: Mapping[str, bytes]


def read_modules(image: ImageArchive, folder: str) -> ImageModules:
    """The modules at and below ``folder``, sorted by path, and the indexes in it.

    Raises:
        VerificationFailed: IMAGE_INVALID, when there are more, or larger ones, than any driver has.
        InvalidModule: one cannot be read.
    """
    modules: dict[str, KernelModule] = {}
    indexes: dict[str, bytes] = {}
    size = 0
    for file in image.files(folder):
        if module_name(file.path):
            modules[file.path] = module = parse_kernel_module(file.read(size_limit(file.path)), file.path)
            size += _size(module)
            if len(modules) > MAX_MODULES:
                raise _too_much(f"more than {MAX_MODULES} modules")
            if size > MAX_WORDS:
                raise _too_much("modules with more symbols and aliases than all of a distribution's")
        elif file.path in (f"{folder}/{name}" for name in INDEXES):
            indexes[file.path] = file.read(MAX_INDEX)
    return ImageModules(modules=dict(sorted(modules.items())), indexes=indexes)


def _size(module: KernelModule) -> int:
    words: tuple[Iterable[str], ...] = (
        *(module.depends, module.aliases, module.namespaces),
        *(module.parameters, module.parameters.values()),
        *(module.crcs, module.undefined, module.weak, module.exports),
    )
    return sum(len(word) + _WORD_COST for group in words for word in group)


def _too_much(what: str) -> VerificationFailed:
    return VerificationFailed(Reason.IMAGE_INVALID, f"the image has {what}: install only what the driver needs")
