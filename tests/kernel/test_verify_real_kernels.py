"""What verification says of the modules of real kernels: all that a kernel takes of its own, none of another one's.

The kernels' own modules are the best judges of a check: a thousand of them, signed and indexed by the distribution, are
known to load; what refuses one of them is wrong. All of them are the study's (``make test-long``), some are looked at
each time.
"""

from dataclasses import dataclass

import pytest

from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module
from driver_builder.modules.module_files import module_name
from driver_builder.modules.symvers import ExportedSymbol, owner_names, parse_module_symvers
from driver_builder.modules.verify_files import check_depends, check_indexes, paths_by_name
from driver_builder.modules.verify_symbols import check_symbols, fits
from testbed.kernels import KernelPackage, choose_kernels
from testbed.progress import PlainLines


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel with its own modules by path, and what it exports."""

    release: str
    folder: str
    symvers: dict[str, ExportedSymbol]
    modules: dict[str, KernelModule]
    indexes: dict[str, bytes]


def read_kernel(package: KernelPackage, *, every: int = 1) -> Kernel:
    """Read all of its modules, or every so many."""
    folder = f"/lib/modules/{package.release}"
    files = sorted(path for path in package.modules.rglob("*.ko*") if module_name(path.name))[::every]
    return Kernel(
        release=package.release,
        folder=folder,
        symvers=parse_module_symvers(package.symvers.read_text()),
        modules={
            f"{folder}/{path.relative_to(package.modules)}": parse_kernel_module(path.read_bytes(), path.name)
            for path in files
        },
        indexes={
            f"{folder}/{name}": (package.modules / name).read_bytes() for name in ("modules.dep", "modules.alias")
        },
    )


@pytest.fixture(scope="module")
def kernels() -> tuple[Kernel, Kernel]:
    """Two kernels whose modules refuse each other."""
    one, other = choose_kernels(2, PlainLines())
    return read_kernel(one), read_kernel(other)


@pytest.fixture(scope="module")
def samples() -> tuple[Kernel, Kernel]:
    """Some modules of each of the two."""
    one, other = choose_kernels(2, PlainLines())
    return read_kernel(one, every=25), read_kernel(other, every=25)


def test_some_of_a_kernels_modules_fit_it_and_not_the_other(samples: tuple[Kernel, Kernel]) -> None:
    """What the study finds of all modules, of some: symbols, dependencies, exports, signatures."""
    for kernel, other in (samples, samples[::-1]):
        assert len(kernel.modules) > 20
        check_symbols(tuple(kernel.modules.values()), kernel.symvers, kernel.release)
        check_depends(kernel.modules.values(), owner_names(kernel.symvers), kernel.release)
        assert all(fits(module, other.symvers) for module in kernel.modules.values())
        read = {name: symbol for module in kernel.modules.values() for name, symbol in module.exports.items()}
        assert read.items() <= kernel.symvers.items()
        assert len({signer.signer for module in kernel.modules.values() for signer in module.signatures}) == 1


@pytest.mark.long
def test_a_kernel_takes_its_own_modules(kernels: tuple[Kernel, Kernel]) -> None:
    """Symbols, namespaces, licenses, dependencies, indexes: nothing of a distribution's own is refused."""
    for kernel in kernels:
        assert len(kernel.modules) > 500
        check_symbols(tuple(kernel.modules.values()), kernel.symvers, kernel.release)
        check_depends(kernel.modules.values(), owner_names(kernel.symvers), kernel.release)
        check_indexes(kernel.indexes, kernel.modules, kernel.folder)
        paths_by_name(kernel.modules)


@pytest.mark.long
def test_exports_are_read_as_the_kernel_wrote_them_down(kernels: tuple[Kernel, Kernel]) -> None:
    """CRC, owner, namespace and license of each export of a module are those in Module.symvers."""
    for kernel in kernels:
        read = {name: symbol for module in kernel.modules.values() for name, symbol in module.exports.items()}
        assert read == {name: symbol for name, symbol in kernel.symvers.items() if symbol.owner != "vmlinux"}


@pytest.mark.long
def test_the_distribution_signs_all_its_modules_with_one_key(kernels: tuple[Kernel, Kernel]) -> None:
    """Debian's kernels are signed in their build, by a key of that build."""
    for kernel in kernels:
        signatures = [module.signatures for module in kernel.modules.values()]
        assert {len(signers) for signers in signatures} == {1}
        assert len({signer.signer for (signer,) in signatures}) == 1


@pytest.mark.long
def test_another_kernel_refuses_every_module(kernels: tuple[Kernel, Kernel]) -> None:
    """Each of them imports module_layout, whose CRC differs."""
    one, other = kernels
    assert all(fits(module, other.symvers) for module in one.modules.values())
    assert all(fits(module, one.symvers) for module in other.modules.values())
