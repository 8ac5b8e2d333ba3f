"""What a driver's modules need of a kernel, and the shell that inserts all of it in order."""

from types import SimpleNamespace
from typing import Any, cast

from bench.matrix.loading import needed_files, parse_softdeps, script

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


def test_own_modules_are_inserted_in_order_with_their_parameters() -> None:
    """Up to the first that fails, whose code is the section's."""
    own = cast(Any, {"a": SimpleNamespace(depends=("b", "dm_mod")), "b": SimpleNamespace(depends=())})
    text = script(3, ["kernel/dm-mod.ko"], own, {"a": ("destination=1 2",)})
    assert text == (
        "insmod /kernel/kernel/dm-mod.ko 2>/dev/null; dmesg -c >/dev/null; "
        "insmod /3/b.ko && insmod /3/a.ko 'destination=1 2'; code=$?; dmesg -c; exit $code"
    )
