"""The folder of modules in an image: what is missing, double, or not in an index."""

from collections.abc import Mapping

import pytest

from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import ModuleSpec
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.verify_files import check_depends, check_indexes, check_wanted, paths_by_name
from tests.support.driver_builder.kernel_modules import a_module

FOLDER = "/lib/modules/6.1"
ALIASES = ("pci:v00001234d*", "of:N*T*Cvendor,a b")
MODULES = {
    f"{FOLDER}/updates/a.ko": a_module("a", depends=("b", "drm")),
    f"{FOLDER}/updates/b.ko.xz": a_module("b", aliases=ALIASES),
}
DEP = b"updates/a.ko: updates/b.ko.xz\nupdates/b.ko.xz:\n"
ALIAS = b"# Aliases\nalias pci:v00001234d* b\nalias of:N*T*Cvendor,a b b\n"


def indexes(dep: bytes | None = DEP, alias: bytes | None = ALIAS) -> dict[str, bytes]:
    """The files that depmod makes, but for those that are None."""
    named = {"modules.dep": dep, "modules.alias": alias}
    return {f"{FOLDER}/{name}": content for name, content in named.items() if content is not None}


def test_a_folder_that_is_whole_passes() -> None:
    """All modules, once, and in the indexes."""
    assert paths_by_name(MODULES) == {"a": f"{FOLDER}/updates/a.ko", "b": f"{FOLDER}/updates/b.ko.xz"}
    check_wanted((ModuleSpec(name="a"),), paths_by_name(MODULES), FOLDER)
    check_indexes(indexes(), MODULES, FOLDER)
    check_depends(MODULES.values(), ("a", "b", "drm"), "6.1")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        pytest.param({"/x/a.ko": a_module("a"), "/y/a.ko.xz": a_module("a")}, "a is in the image twice", id="twice"),
        pytest.param({"/x/b.ko": a_module("a")}, "/x/b.ko is module a: the loader finds", id="renamed"),
    ],
)
def test_every_module_is_there_once_and_under_its_name(modules: Mapping[str, KernelModule], message: str) -> None:
    """The loader and modprobe know modules by the names of their files."""
    with pytest.raises(VerificationFailed, match=message):
        paths_by_name(modules)


def test_a_dependency_may_be_in_the_image_or_of_the_kernel() -> None:
    """Anything else cannot be loaded."""
    with pytest.raises(VerificationFailed, match=r"module a depends on drm, which is neither .* kernel 6\.1") as caught:
        check_depends(MODULES.values(), ("a", "b", "vmlinux"), "6.1")
    assert caught.value.reason is Reason.DEPENDENCY_MISSING


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(indexes(dep=None), "no /lib/modules/6.1/modules.dep", id="no modules.dep"),
        pytest.param(indexes(alias=None), "no /lib/modules/6.1/modules.alias", id="no modules.alias"),
        pytest.param(
            indexes(dep=b"updates/b.ko.xz:\n"),
            r"modules\.dep does not list .*a\.ko: run depmod -b",
            id="depmod too early",
        ),
        pytest.param(
            indexes(dep=DEP.replace(b" updates/b.ko.xz", b"")),
            "does not list b as dependencies of .*a.ko",
            id="not needed",
        ),
        pytest.param(
            indexes(dep=DEP.replace(b"xz\n", b"xz kernel/drm.ko\n", 1)),
            "names kernel/drm.ko, which the image does not",
            id="needs what is not there",
        ),
        pytest.param(indexes(dep=DEP + b"kernel/c.ko:\n"), "names kernel/c.ko, which the image", id="of another tree"),
        pytest.param(
            indexes(alias=b"alias pci:v00001234d* b\nalias of:N*T*Cvendor,a a\n"),
            r"modules\.alias does not give of:N\*T\*Cvendor,a b to module b",
            id="an alias is missing",
        ),
        pytest.param(indexes(dep=b"\xff:\xfe"), "does not list", id="damaged"),
    ],
)
def test_an_index_that_does_not_agree_is_refused(files: Mapping[str, bytes], message: str) -> None:
    """The loader would not find a module, or look for one that is not there."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        check_indexes(files, MODULES, FOLDER)
    assert caught.value.reason is Reason.IMAGE_INVALID


def test_modules_without_aliases_need_no_index_of_them() -> None:
    """Some templates leave out what has no entries."""
    check_indexes({"/x/modules.dep": b"a.ko:\n"}, {"/x/a.ko": a_module("a")}, "/x")
