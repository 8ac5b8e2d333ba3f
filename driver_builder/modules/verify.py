"""Checks before a push that the modules in a built image fit the kernel they were built for.

Place in the flow: after a builder, before ``registry``. Pure over values: an image on disk and the text of the target's
Module.symvers go in, the verified modules come out, or a :class:`VerificationFailed` that says what does not fit.

vermagic alone proves little: in a kernel with MODVERSIONS its release is not compared when the module carries CRCs
(``kernel/module/version.c``: ``same_magic``). So the CRC of every imported symbol is compared as well.

Every check is its own function: ``verify_files`` has those of the folder, ``verify_symbols`` those of the imports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import ConfigurationError, InvalidModule, InvalidSymvers, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import BuildRequest
from driver_builder.modules import vermagic
from driver_builder.modules.image_modules import ImageModules, read_modules
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.module_signature import Certificate, is_broken, is_by, parse_certificate
from driver_builder.modules.symvers import BUILT_IN, ExportedSymbol, has_crcs, owner_names, parse_module_symvers
from driver_builder.modules.verify_files import check_depends, check_indexes, check_wanted, paths_by_name
from driver_builder.modules.verify_symbols import check_exports, check_symbols
from driver_builder.modules.verify_userspace import check_userspace

MACHINES = {
    "386": "EM_386",
    "amd64": "EM_X86_64",
    "arm": "EM_ARM",
    "arm64": "EM_AARCH64",
    "loong64": "EM_LOONGARCH",
    "ppc64le": "EM_PPC64",
    "riscv64": "EM_RISCV",
    "s390x": "EM_S390",
}
"""Kubernetes' word for an architecture to the machine in an ELF header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedModule:
    """A module that fits: its absolute ``path`` in the image, and what the loaded module must show in /sys/module.

    ``needs`` are modules of the image that it needs and that the request does not name, each with its identity.
    """

    name: str
    path: str
    srcversion: str
    build_id: str
    vermagic: str
    needs: tuple[tuple[str, str], ...] = ()


def verify(image: ImageArchive, *, request: BuildRequest, module_symvers: str) -> tuple[VerifiedModule, ...]:
    """Check every module below ``/lib/modules/<kernel>`` and return those of the request, in load order.

    Raises:
        VerificationFailed: with the first class of failure that was found; the message names module and symbols.
    """
    certificate = _parse_certificate(request.signing_certificate)
    folder = f"/lib/modules/{request.target.kernel_version}"
    found = _read(image, folder)
    modules = found.modules
    paths = paths_by_name(modules)
    check_wanted(request.modules, paths, folder)
    kernel_symbols = _parse_symvers(module_symvers)
    in_load_order = [modules[paths[spec.name]] for spec in request.modules]
    others = [module for module in modules.values() if module not in in_load_order]
    check_modules((*others, *in_load_order), kernel_symbols, request=request, certificate=certificate)
    check_indexes(found.indexes, modules, folder)
    check_userspace(image, request, in_load_order)
    unnamed = {module.name: module for module in others}
    return tuple(
        _verified(paths[module.name], module, tuple(_needed(module, unnamed).items())) for module in in_load_order
    )


def check_modules(
    modules: Sequence[KernelModule],
    kernel_symbols: dict[str, ExportedSymbol],
    *,
    request: BuildRequest,
    certificate: Certificate | None = None,
) -> None:
    """Check modules that are loaded beside each other against what their kernel exports.

    Raises:
        VerificationFailed: with the first class of failure that was found.
    """
    kernel = request.target.kernel_version
    for module in modules:
        _check_build(module, request)
        _check_vermagic(module, modules[0], has_modversions=has_crcs(kernel_symbols), request=request)
        if certificate:
            _check_signature(module, certificate)
    check_exports(modules, kernel_symbols, kernel)
    exported = {name: symbol for module in modules for name, symbol in module.exports.items()}
    # Drivers that are loaded before may replace modules of the kernel, never what the kernel itself exports.
    own = {name: symbol for name, symbol in kernel_symbols.items() if symbol.owner == BUILT_IN}
    given = kernel_symbols | _parse_symvers(request.extra_symvers) | own | exported
    check_symbols(modules, given, kernel)
    check_depends(modules, {*owner_names(given), *owner_names(kernel_symbols), *(it.name for it in modules)}, kernel)


def _needed(module: KernelModule, others: Mapping[str, KernelModule]) -> dict[str, str]:
    """Return which of the others a module needs, directly or not, with their identities."""
    found: dict[str, str] = {}
    left = list(module.depends)
    while left:
        name = left.pop()
        if name in others and name not in found:
            found[name] = others[name].identity
            left += others[name].depends
    return dict(sorted(found.items()))


def _verified(path: str, module: KernelModule, needs: tuple[tuple[str, str], ...]) -> VerifiedModule:
    return VerifiedModule(
        name=module.name,
        path=path,
        srcversion=module.srcversion,
        build_id=module.build_id,
        vermagic=module.vermagic,
        needs=needs,
    )


def _read(image: ImageArchive, folder: str) -> ImageModules:
    try:
        return read_modules(image, folder)
    except InvalidModule as error:
        raise VerificationFailed(Reason.IMAGE_INVALID, str(error)) from error


def _parse_symvers(text: str) -> dict[str, ExportedSymbol]:
    try:
        return parse_module_symvers(text)
    except InvalidSymvers as error:
        raise VerificationFailed(
            Reason.IMAGE_INVALID,
            f"the Module.symvers that the build left cannot be read: {error}; the template must leave the one of the"
            " kernel's headers",
        ) from error


def _parse_certificate(content: bytes | None) -> Certificate | None:
    try:
        return None if content is None else parse_certificate(content)
    except ConfigurationError as error:
        raise VerificationFailed(Reason.WRONG_MODULE_SIGNER, str(error)) from error


def _check_build(module: KernelModule, request: BuildRequest) -> None:
    architecture, kernel = request.target.architecture, request.target.kernel_version
    if module.kernel_version != kernel:
        raise VerificationFailed(
            Reason.WRONG_VERMAGIC,
            f"module {module.name} was built for kernel {module.kernel_version}, not for {kernel}"
            f" (vermagic {module.vermagic.strip()!r})",
        )
    expected = MACHINES.get(architecture)
    if module.architecture != expected:
        raise VerificationFailed(
            Reason.WRONG_ARCHITECTURE,
            f"module {module.name} is for {module.architecture}, but {architecture} needs {expected}",
        )
    if not module.identity:
        raise VerificationFailed(
            Reason.NO_MODULE_IDENTITY,
            f"module {module.name} has neither srcversion nor build id, so the loaded module cannot be distinguished"
            " from another one",
        )


def _check_vermagic(module: KernelModule, other: KernelModule, *, has_modversions: bool, request: BuildRequest) -> None:
    """The words after the release: as those of the modules beside it, and as kernel and architecture have them."""
    kernel, found = request.target.kernel_version, vermagic.words_of(module.vermagic)
    if difference := vermagic.difference(module.vermagic, other.vermagic):
        raise _wrong_words(module, f"{difference}, unlike module {other.name} beside it")
    if has_modversions != (vermagic.MODVERSIONS in found):
        verb, with_ = ("lacks", "with") if has_modversions else ("has", "without")
        raise _wrong_words(module, f"{verb} modversions, but kernel {kernel} was built {with_} CONFIG_MODVERSIONS")
    word = vermagic.ARCHITECTURE_WORDS.get(request.target.architecture)
    if word and word not in found:
        raise _wrong_words(module, f"lacks {word}, which every kernel of {request.target.architecture} has")


def _wrong_words(module: KernelModule, problem: str) -> VerificationFailed:
    return VerificationFailed(
        Reason.WRONG_VERMAGIC,
        f"the version magic of module {module.name} ({module.vermagic.strip()!r}) {problem}",
    )


def _check_signature(module: KernelModule, certificate: Certificate) -> None:
    if not module.signatures:
        raise VerificationFailed(
            Reason.MODULE_NOT_SIGNED,
            f"module {module.name} is not signed, but a signature by {certificate} is required",
        )
    ours = [signature for signature in module.signatures if is_by(signature, certificate)]
    if not ours:
        signers = ", ".join(signature.signer for signature in module.signatures)
        raise VerificationFailed(
            Reason.WRONG_MODULE_SIGNER,
            f"module {module.name} is signed by {signers}, not by {certificate}",
        )
    if any(is_broken(signature, certificate) for signature in ours):
        raise VerificationFailed(
            Reason.MODULE_SIGNATURE_BROKEN,
            f"the signature of module {module.name} by {certificate} is not over this file, not by this key, has signed"
            " attributes, a hash that is unknown here or a key that is not RSA",
        )
