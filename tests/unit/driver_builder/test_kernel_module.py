"""Kernel module files and Module.symvers as values.

``tests/data/modules`` holds two small real modules, their source, and the lines of two real Module.symvers that matter.
"""

import contextlib
import gzip
import lzma
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver_builder.kernel_module import (
    SIGNATURE_MARKER,
    ExportedSymbol,
    InvalidModule,
    module_name,
    parse_extended_versions,
    parse_kernel_module,
    parse_modinfo,
    parse_module_symvers,
    parse_versions,
)

MODULES = Path(__file__).parents[2] / "data" / "modules"
PROBE = (MODULES / "dw_probe.ko").read_bytes()
HELPER = (MODULES / "dw_helper.ko").read_bytes()


def test_a_real_module_says_what_it_is() -> None:
    """Every fact of a module that the Debian toolchain built for 6.1.0-55-cloud-amd64."""
    module = parse_kernel_module(PROBE, "dw_probe.ko")
    assert module.name == "dw_probe"
    assert module.vermagic == "6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions "
    assert module.kernel_version == "6.1.0-55-cloud-amd64"
    assert module.identity == module.srcversion == "509CB8B26651F6450DB59D4"
    assert module.build_id == "8d1c041f9eb3399ee3abc466b9b547028b38f228"
    assert (module.license, module.version, module.architecture) == ("GPL", "2.5", "EM_X86_64")
    assert module.depends == ("dw_helper",)
    assert module.aliases == ("pci:v00001234d000011E8sv*sd*bc*sc*i*",)
    assert module.namespaces == ("DW_HELPER",)
    assert module.parameters == {"verbosity": "int"}
    assert module.crcs["module_layout"] == 0xA351F379
    assert module.undefined == set(module.crcs) - {"module_layout"}
    assert module.weak == frozenset()
    assert not module.is_signed


def test_exports_carry_the_crc_that_others_import() -> None:
    """The CRC in the exporting file is the one in the importing file."""
    exports = parse_kernel_module(HELPER, "dw_helper.ko").exports
    assert exports == {"dw_helper_double": 0x3A11D9A0}
    assert parse_kernel_module(PROBE, "dw_probe.ko").crcs["dw_helper_double"] == exports["dw_helper_double"]


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [pytest.param(".ko.xz", lzma.compress, id="xz"), pytest.param(".ko.gz", gzip.compress, id="gzip")],
)
def test_a_compressed_module_reads_the_same(suffix: str, compress: object) -> None:
    """Distributions ship compressed modules; what they say does not change."""
    assert callable(compress)
    assert parse_kernel_module(compress(PROBE), f"dw_probe{suffix}") == parse_kernel_module(PROBE, "dw_probe.ko")


def test_an_appended_signature_is_seen() -> None:
    """A signed module ends with the kernel's marker and still reads."""
    assert parse_kernel_module(PROBE + b"PKCS#7" + SIGNATURE_MARKER, "dw_probe.ko").is_signed


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        pytest.param(b"", "a.ko", "no readable ELF file", id="empty"),
        pytest.param(b"#!/bin/sh\n", "a.ko", "no readable ELF file", id="a script"),
        pytest.param(PROBE[:200], "a.ko", "a.ko", id="cut off in the header"),
        pytest.param(PROBE, "a.ko.zst", "zstd", id="zstd"),
        pytest.param(PROBE, "a.ko.xz", "cannot be decompressed", id="no xz"),
        pytest.param(lzma.compress(PROBE)[:-20], "a.ko.xz", "cannot be decompressed", id="xz cut off"),
        pytest.param(PROBE, "a.ko.gz", "cannot be decompressed", id="no gzip"),
        pytest.param(PROBE.replace(b"vermagic=", b"vermogic="), "a.ko", "no version magic", id="no version magic"),
        pytest.param(PROBE.replace(b".symtab\0", b".symtub\0"), "a.ko", "--strip-debug", id="stripped too far"),
    ],
)
def test_a_file_that_is_no_module_is_refused(content: bytes, path: str, message: str) -> None:
    """The message says what is wrong with which file."""
    with pytest.raises(InvalidModule, match=message):
        parse_kernel_module(content, path)


@settings(max_examples=300)
@given(data=st.data())
def test_damage_never_escapes_as_a_foreign_error(data: st.DataObject) -> None:
    """A module with a few bytes changed reads, or is refused as InvalidModule."""
    damaged = bytearray(PROBE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(PROBE) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidModule):
        parse_kernel_module(bytes(damaged), "a.ko")


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


SYMBOLS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=55)
CRCS = st.integers(0, 2**32 - 1)


@given(st.dictionaries(SYMBOLS, CRCS), st.sampled_from([4, 8]), st.booleans())
def test_versions_of_every_width_and_byte_order_are_read(
    crcs: dict[str, int], long_size: int, little_endian: bool
) -> None:
    """What modpost writes into __versions comes back."""
    order, word = "<" if little_endian else ">", "Q" if long_size == 8 else "I"
    section = b"".join(struct.pack(f"{order}{word}{64 - long_size}s", crc, name.encode()) for name, crc in crcs.items())
    assert parse_versions(section, long_size=long_size, little_endian=little_endian) == crcs


@given(st.dictionaries(SYMBOLS, CRCS), st.booleans())
def test_extended_versions_are_read(crcs: dict[str, int], little_endian: bool) -> None:
    """Words in one section, names in the other, one for one."""
    words = struct.pack(f"{'<' if little_endian else '>'}{len(crcs)}I", *crcs.values())
    names = b"".join(name.encode() + b"\0" for name in crcs)
    assert parse_extended_versions(words, names, little_endian=little_endian) == crcs


def test_uneven_sections_are_refused() -> None:
    """A cut-off table is an error, not a shorter table."""
    with pytest.raises(InvalidModule, match="63 bytes"):
        parse_versions(bytes(63), long_size=8, little_endian=True)
    with pytest.raises(InvalidModule, match="1 entries, __version_ext_names 2"):
        parse_extended_versions(bytes(4), b"a\0b\0", little_endian=True)


def test_modinfo_keys_may_repeat() -> None:
    """Aliases and namespaces come once per entry; padding and text without a key are nothing."""
    assert parse_modinfo(b"alias=pci:a\0\0\0alias=b=c\0nothing\0") == {"alias": ["pci:a", "b=c"]}


def test_a_real_symvers_is_read() -> None:
    """The lines of a Debian kernel's own Module.symvers."""
    symbols = parse_module_symvers((MODULES / "6.1.0-55-cloud-amd64.symvers").read_text())
    assert symbols["module_layout"] == ExportedSymbol(crc=0xA351F379, namespace="")


@given(st.dictionaries(SYMBOLS, st.tuples(CRCS, SYMBOLS | st.just(""))))
def test_every_symvers_line_is_read(lines: dict[str, tuple[int, str]]) -> None:
    """CRC and namespace of each symbol come back."""
    text = "".join(f"{crc:#010x}\t{name}\tvmlinux\tEXPORT_SYMBOL\t{space}\n" for name, (crc, space) in lines.items())
    assert parse_module_symvers(text) == {name: ExportedSymbol(crc, space) for name, (crc, space) in lines.items()}


def test_a_symvers_of_old_kernels_has_no_namespace() -> None:
    """Before 5.4 the fifth field was not written."""
    assert parse_module_symvers("0x1\ta\tvmlinux\tEXPORT_SYMBOL\n") == {"a": ExportedSymbol(1, "")}


@pytest.mark.parametrize("text", [pytest.param("<html>", id="a web page"), pytest.param("0x1 a", id="blanks for tabs")])
def test_a_text_that_is_no_symvers_is_refused(text: str) -> None:
    """The line is named."""
    with pytest.raises(ValueError, match="line 2"):
        parse_module_symvers(f"\n{text}\n")
