"""The folder of modules in an image: every wanted module once, and indexes that agree with the files.

Place in the flow: ``verify`` asks it of a built image; the loader and modprobe find modules by these indexes. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import ModuleSpec
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.module_files import module_name, parse_modules_alias, parse_modules_dep

_SHOWN = 3


def paths_by_name(modules: Mapping[str, KernelModule]) -> dict[str, str]:
    """Module name to path; ``modules`` are by path.

    Raises:
        VerificationFailed: IMAGE_INVALID, when two files are the same module.
    """
    paths: dict[str, str] = {}
    for path, module in modules.items():
        if module.name in paths:
            raise VerificationFailed(
                Reason.IMAGE_INVALID,
                f"module {module.name} is in the image twice: {paths[module.name]} and {path}",
            )
        if module.name != module_name(path):
            raise VerificationFailed(
                Reason.IMAGE_INVALID,
                f"{path} is module {module.name}: the loader finds a module by its file's name",
            )
        paths[module.name] = path
    return paths


def check_wanted(wanted: Sequence[ModuleSpec], paths: Mapping[str, str], folder: str) -> None:
    """Every wanted module must be there.

    Raises:
        VerificationFailed: MODULE_MISSING.
    """
    missing = [spec.name for spec in wanted if spec.name not in paths]
    if missing:
        found = ", ".join(sorted(paths)) or "no module at all"
        raise VerificationFailed(
            Reason.MODULE_MISSING,
            f"the image has no module {', '.join(missing)} below {folder} (found {found})",
        )


def check_depends(modules: Iterable[KernelModule], known: Iterable[str], kernel: str) -> None:
    """What a module says it depends on must be in the image or a module of the kernel; ``known`` has the names of both.

    Raises:
        VerificationFailed: DEPENDENCY_MISSING.
    """
    names = frozenset(known)
    for module in modules:
        missing = sorted(set(module.depends) - names)
        if missing:
            raise VerificationFailed(
                Reason.DEPENDENCY_MISSING,
                f"module {module.name} depends on {', '.join(missing)}, which is neither in the image nor a module of"
                f" kernel {kernel}",
            )


def check_indexes(files: Mapping[str, bytes], modules: Mapping[str, KernelModule], folder: str) -> None:
    """modules.dep and modules.alias must say what the modules say; both are as depmod makes them.

    Raises:
        VerificationFailed: IMAGE_INVALID.
    """
    _check_dep(parse_modules_dep(_index(files, folder, "modules.dep")), modules, folder)
    if any(module.aliases for module in modules.values()):
        _check_alias(parse_modules_alias(_index(files, folder, "modules.alias")), modules.values(), folder)


def _index(files: Mapping[str, bytes], folder: str, name: str) -> str:
    content = files.get(f"{folder}/{name}")
    if content is None:
        raise VerificationFailed(Reason.IMAGE_INVALID, f"the image has no {folder}/{name}")
    return content.decode(errors="replace")


def _check_dep(dependencies: Mapping[str, Sequence[str]], modules: Mapping[str, KernelModule], folder: str) -> None:
    """Each module is listed, with those of the image that it depends on, and with nothing that the image lacks."""
    present = {module.name for module in modules.values()}
    for path, module in modules.items():
        listed = dependencies.get(str(PurePosixPath(path).relative_to(folder)))
        if listed is None:
            raise _stale(f"{folder}/modules.dep does not list {path}")
        lacking = (set(module.depends) & present) - {module_name(entry) for entry in listed}
        if lacking:
            raise _stale(f"{folder}/modules.dep does not list {', '.join(sorted(lacking))} as dependencies of {path}")
    named = {*dependencies, *(entry for listed in dependencies.values() for entry in listed)}
    absent = sorted(entry for entry in named if f"{folder}/{entry}" not in modules)
    if absent:
        raise _stale(f"{folder}/modules.dep names {', '.join(absent[:_SHOWN])}, which the image does not have")


def _check_alias(aliases: frozenset[tuple[str, str]], modules: Iterable[KernelModule], folder: str) -> None:
    for module in modules:
        lacking = [alias for alias in module.aliases if (alias, module.name) not in aliases]
        if lacking:
            raise _stale(
                f"{folder}/modules.alias does not give {', '.join(lacking[:_SHOWN])} to module {module.name}, so that"
                " the kernel would not find the module for its devices"
            )


def _stale(problem: str) -> VerificationFailed:
    return VerificationFailed(Reason.IMAGE_INVALID, f"{problem}: run depmod -b after all modules are installed")
