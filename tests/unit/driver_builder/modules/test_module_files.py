"""Names and compression of module files, and the indexes beside them."""

import gzip
import lzma

import pytest

from driver_builder.base.errors import InvalidModule
from driver_builder.modules.module_files import module_name, parse_modules_alias, parse_modules_dep, unpack_module
from tests.support.driver_builder.kernel_modules import PROBE


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param("lib/modules/6.1/updates/drm-kms.ko.xz", "drm_kms", id="dashes become underscores"),
        pytest.param("a.ko", "a", id="plain"),
        pytest.param("a.ko.zst", "a", id="zstd"),
        pytest.param("modules.dep", "", id="no module"),
        pytest.param("a.ko.dbg", "", id="debug file"),
    ],
)
def test_a_module_is_named_by_its_file(path: str, name: str) -> None:
    """The name is the one in /proc/modules."""
    assert module_name(path) == name


@pytest.mark.parametrize(
    ("content", "path"),
    [
        pytest.param(PROBE, "a.ko", id="plain"),
        pytest.param(lzma.compress(PROBE, preset=0), "a.ko.xz", id="xz"),
        pytest.param(lzma.compress(PROBE, check=lzma.CHECK_CRC32, preset=0), "a.ko.xz", id="xz as the kernel reads it"),
        pytest.param(gzip.compress(PROBE), "a.ko.gz", id="gzip"),
    ],
)
def test_a_module_is_unpacked(content: bytes, path: str) -> None:
    """A compressed module is decompressed as kmod does it."""
    assert unpack_module(content, path) == PROBE


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        pytest.param(PROBE, "a.ko.zst", "zstd, which is not read here; install it as .ko or .ko.xz", id="zstd"),
        pytest.param(PROBE, "a.ko.xz", "cannot be decompressed", id="no xz"),
        pytest.param(b"", "a.ko.xz", "cannot be decompressed", id="an empty xz"),
        pytest.param(lzma.compress(PROBE, preset=0)[:-20], "a.ko.xz", "cannot be decompressed", id="xz cut off"),
        pytest.param(PROBE, "a.ko.gz", "cannot be decompressed", id="no gzip"),
        pytest.param(gzip.compress(PROBE)[:-9], "a.ko.gz", "cannot be decompressed", id="gzip cut off"),
        pytest.param(gzip.compress(bytes(9_000_000)), "a.ko.gz", "more than 4000000 bytes", id="a bomb"),
        pytest.param(
            lzma.compress(bytes(9_000_000), preset=0), "a.ko.xz", "more than 4000000 bytes", id="another bomb"
        ),
    ],
)
def test_what_cannot_be_unpacked_is_refused(content: bytes, path: str, message: str) -> None:
    """A bomb takes no more memory than the limit."""
    with pytest.raises(InvalidModule, match=message):
        unpack_module(content, path, limit=4_000_000)


def test_modules_dep_maps_each_module_to_what_it_needs() -> None:
    """Paths are relative to the file; a module that needs nothing has an empty list."""
    assert parse_modules_dep("a.ko: b.ko c.ko\nb.ko:\n\n") == {"a.ko": ("b.ko", "c.ko"), "b.ko": ()}


def test_modules_alias_gives_patterns_to_modules() -> None:
    """Patterns may have blanks; comments and cut-off lines are nothing."""
    text = "# Aliases extracted from modules themselves.\nalias pci:v1* a\nalias a b c\nalias cut\n"
    assert parse_modules_alias(text) == {("pci:v1*", "a"), ("a b", "c")}
