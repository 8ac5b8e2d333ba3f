"""What a driver's modules need of a kernel, and the shell that inserts all of it in order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.matrix.loading import Candidate, needed_files, parse_softdeps, refused_by_us, script
from testbed.kernels import KernelPackage
from tests.support.driver_builder.kernel_modules import HELPER, PROBE, SYMVERS_47, SYMVERS_55

DEPENDENCIES = {
    "kernel/lib/libcrc32c.ko": [],
    "kernel/crypto/crc32c_generic.ko": [],
    "kernel/arch/crc32c-intel.ko.xz": [],
    "kernel/drivers/md/dm-mod.ko": ["kernel/drivers/dax/dax.ko"],
    "kernel/drivers/dax/dax.ko": [],
}
SOFTDEPS = "# Soft dependencies\nsoftdep libcrc32c pre: crc32c\nsoftdep nfs pre: a-b c post: d\n"
ALIASES = "# Aliases\nalias crc32c crc32c_intel\nalias crc32c crc32c_generic\nalias crypto-md5 md5\n"


def test_soft_dependencies_are_those_that_provide_the_alias() -> None:
    """A word that is no alias is a module's name."""
    soft = parse_softdeps(SOFTDEPS, ALIASES)
    assert soft == {"libcrc32c": ["crc32c_intel", "crc32c_generic"], "nfs": ["a_b", "c"]}


def test_what_a_module_asks_for_comes_before_it() -> None:
    """Hard dependencies of dependencies as well; what is built in is no file."""
    soft = parse_softdeps(SOFTDEPS, ALIASES)
    assert needed_files(DEPENDENCIES, soft, ["dm_mod", "libcrc32c", "built_in"]) == [
        "kernel/arch/crc32c-intel.ko.xz",
        "kernel/crypto/crc32c_generic.ko",
        "kernel/drivers/dax/dax.ko",
        "kernel/drivers/md/dm-mod.ko",
        "kernel/lib/libcrc32c.ko",
    ]


@pytest.mark.parametrize(
    ("release", "symvers", "words"),
    [
        pytest.param("6.1.0-56-cloud-amd64", SYMVERS_55, "", id="the same CRCs"),
        pytest.param("6.1.0-47-cloud-amd64", SYMVERS_47, "WrongSymbolCRC: module dw_helper", id="other CRCs"),
        pytest.param("7.2.0", "0x00000000\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n", "WrongVermagic: ", id="no CRCs"),
    ],
)
def test_verification_is_asked_of_another_kernel(release: str, symvers: str, words: str, tmp_path: Path) -> None:
    """By CRCs, and by the release where the kernel has none."""
    modules = tmp_path / "lib/modules" / release
    modules.mkdir(parents=True)
    for name, content in {"dw_helper.ko": HELPER, "dw_probe.ko": PROBE}.items():
        (modules / name).write_bytes(content)
    (tmp_path / "symvers").write_text(symvers)
    kernel = KernelPackage(
        release=release, codename="", version="", image_package="", headers_package="", module_layout_crc="",
        symvers=tmp_path / "symvers", tree=tmp_path,
    )  # fmt: skip
    said = refused_by_us(Candidate(driver="edu", key="k", folder=modules, parameters={}), kernel)
    assert (said[: len(words)], bool(said)) == (words, bool(words))


def test_own_modules_are_inserted_in_order_with_their_parameters() -> None:
    """Up to the first that fails, whose code is the section's."""
    own = cast(Any, {"a": SimpleNamespace(depends=("b", "dm_mod")), "b": SimpleNamespace(depends=())})
    text = script(3, ["kernel/dm-mod.ko"], own, {"a": ("destination=1 2",)})
    assert text == (
        "insmod /kernel/kernel/dm-mod.ko 2>/dev/null; dmesg -c >/dev/null; "
        "insmod /3/b.ko && insmod /3/a.ko 'destination=1 2'; code=$?; dmesg -c; exit $code"
    )
