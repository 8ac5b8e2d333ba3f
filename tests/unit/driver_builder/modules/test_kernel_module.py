"""Kernel module files as values.

``tests/data/modules`` holds two small real modules, their source, and the lines of real Module.symvers that matter.
"""

import contextlib
import gzip
import lzma
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import InvalidModule
from driver_builder.modules.kernel_module import (
    parse_build_id,
    parse_extended_versions,
    parse_kernel_module,
    parse_modinfo,
    parse_versions,
)
from driver_builder.modules.symvers import ExportedSymbol
from tests.support.driver_builder.kernel_modules import HELPER, PROBE, a_module
from tests.support.driver_builder.module_signing import a_signer

SECTIONS = 0x1608
"""Where dw_probe.ko has the table of its 36 sections, 64 bytes each."""
SYMTAB = SECTIONS + 33 * 64 + 4
"""The byte in it that says that the 33rd section is the symbol table."""


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
    assert module.signatures == ()
    assert module.is_gpl_compatible


def test_exports_are_what_a_symvers_would_say_of_them() -> None:
    """CRC, owner, namespace and for whom; the CRC in the exporting file is the one in the importing file."""
    exports = parse_kernel_module(HELPER, "dw_helper.ko").exports
    exported = ExportedSymbol(crc=0x3A11D9A0, owner="dw_helper", namespace="DW_HELPER", is_gpl_only=True)
    assert exports == {"dw_helper_double": exported}
    assert parse_kernel_module(PROBE, "dw_probe.ko").crcs["dw_helper_double"] == exported.crc


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "__ksymtab_gpl", ExportedSymbol(crc=0x3A11D9A0, owner="dw_helper", namespace="DW_HELPER"), id="all"
        ),
        pytest.param(
            "__crc_dw_", ExportedSymbol(crc=0, owner="dw_helper", namespace="DW_HELPER", is_gpl_only=True), id="no CRC"
        ),
        pytest.param(
            "__kstrtabns_dw_", ExportedSymbol(crc=0x3A11D9A0, owner="dw_helper", is_gpl_only=True), id="no namespace"
        ),
    ],
)
def test_what_an_export_does_not_say_is_nothing(name: str, expected: ExportedSymbol) -> None:
    """Kernels without MODVERSIONS have no CRCs, those before 5.4 no namespaces; most exports are for all modules."""
    helper = HELPER.replace(name.encode(), b"x" * len(name))
    assert parse_kernel_module(helper, "dw_helper.ko").exports == {"dw_helper_double": expected}


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [pytest.param(".ko.xz", lzma.compress, id="xz"), pytest.param(".ko.gz", gzip.compress, id="gzip")],
)
def test_a_compressed_module_reads_the_same(suffix: str, compress: object) -> None:
    """Distributions ship compressed modules; what they say does not change."""
    assert callable(compress)
    assert parse_kernel_module(compress(PROBE), f"dw_probe{suffix}") == parse_kernel_module(PROBE, "dw_probe.ko")


def test_what_the_module_loader_makes_itself_is_no_import() -> None:
    """Undefined in the file, exported by nobody, and loaded all the same."""
    module = parse_kernel_module(PROBE.replace(b"param_ops_int\0", b".TOC.\0nothing\0"), "dw_probe.ko")
    assert "param_ops_int" not in module.undefined
    assert ".TOC." not in module.undefined


@pytest.mark.parametrize("compress", [pytest.param(bytes, id="plain"), pytest.param(lzma.compress, id="compressed")])
def test_an_appended_signature_is_seen(compress: object) -> None:
    """Also inside of a compressed module, where the kernel looks for it."""
    assert callable(compress)
    signer = a_signer("ours")
    module = parse_kernel_module(compress(signer.sign(PROBE)), f"a.ko{'' if compress is bytes else '.xz'}")
    (signature,) = module.signatures
    assert signature.signer.endswith("of 'ours'")


@pytest.mark.parametrize(
    ("license_", "expected"),
    [
        *[pytest.param(word, True, id=word) for word in ("GPL", "GPL v2", "Dual BSD/GPL", "Dual MIT/GPL")],
        *[
            pytest.param(word, False, id=word or "none")
            for word in ("", "Proprietary", "NVIDIA", "MIT", "GPLv2", "gpl")
        ],
    ],
)
def test_the_kernel_knows_six_licenses_by_the_letter(license_: str, expected: bool) -> None:
    """Any other word taints the kernel."""
    assert a_module("m", license=license_).is_gpl_compatible is expected


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        pytest.param(b"", "a.ko", "module file a.ko: it is not a readable ELF file", id="empty"),
        pytest.param(b"#!/bin/sh\n", "a.ko", "not a readable ELF file", id="a script"),
        pytest.param(PROBE[:200], "a.ko", "a.ko", id="cut off in the header"),
        pytest.param(PROBE, "a.ko.zst", "zstd", id="zstd"),
        pytest.param(PROBE[:-200], "a.ko", "section table is damaged or cut off", id="cut off at its end"),
        pytest.param(PROBE, "a.ko.xz", "cannot be decompressed", id="no xz"),
        pytest.param(PROBE[:16] + b"\2" + PROBE[17:], "a.ko", "not a relocatable ELF file but ET_EXEC", id="a program"),
        pytest.param(PROBE[:60] + b"\xff" + PROBE[61:], "a.ko", "damaged or cut off", id="more sections than bytes"),
        pytest.param(PROBE.replace(b"vermagic=", b"vermogic="), "a.ko", "no version magic", id="no version magic"),
        pytest.param(PROBE[:SYMTAB] + b"\7" + PROBE[SYMTAB + 1 :], "a.ko", "--strip-debug", id="stripped too far"),
    ],
)
def test_a_file_that_is_no_module_is_refused(content: bytes, path: str, message: str) -> None:
    """The message says what is wrong with which file."""
    with pytest.raises(InvalidModule, match=message):
        parse_kernel_module(content, path)


def read_or_refused(content: bytes) -> None:
    """A module is read or refused, and neither takes long."""
    start = time.thread_time()
    with contextlib.suppress(InvalidModule):
        parse_kernel_module(content, "a.ko")
    assert time.thread_time() - start < 1


@given(
    st.sampled_from([PROBE, HELPER]), st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=8)))
)
def test_damage_never_escapes_as_a_foreign_error(content: bytes, damages: list[tuple[int, bytes]]) -> None:
    """A module with a few bytes changed, anywhere."""
    damaged = bytearray(content)
    for position, replacement in damages:
        start = position % len(content)
        damaged[start : start + len(replacement)] = replacement
    read_or_refused(bytes(damaged[: len(content)]))


TABLES = (*range(64), *range(SECTIONS, SECTIONS + 36 * 64))
"""The header and the table of the sections: each byte says where other bytes are."""


@given(
    st.lists(
        st.tuples(st.sampled_from(TABLES), st.sampled_from([0, 1, 2, 8, 0x7F, 0x80, 0xFF])), min_size=1, max_size=6
    )
)
def test_damaged_tables_cost_no_more_than_whole_ones(damages: list[tuple[int, int]]) -> None:
    """Sizes of 2^63, tables that are their own names, sections without content: all of it is bounded by the file."""
    damaged = bytearray(PROBE)
    for position, value in damages:
        damaged[position] = value
    read_or_refused(bytes(damaged))


@given(st.integers(0, len(PROBE) - 1))
def test_a_module_that_was_cut_off_is_refused(size: int) -> None:
    """A full disk, or an interrupted copy; the table of the sections is at the end."""
    with pytest.raises(InvalidModule):
        parse_kernel_module(PROBE[:size], "a.ko")


def test_a_module_of_many_symbols_is_read_quickly() -> None:
    """A GPU driver has a hundred thousand symbols; so many are put in place of dw_helper's."""
    table, count = HELPER[0x690 : 0x690 + 0x1F8], 5_000
    content = bytearray(HELPER + table * count)
    header = 0xBE8 + 23 * 64
    struct.pack_into("<QQ", content, header + 24, len(HELPER), len(table) * count)
    start = time.thread_time()
    module = parse_kernel_module(bytes(content), "dw_helper.ko")
    assert time.thread_time() - start < 2
    assert module.undefined == {"__fentry__", "__x86_return_thunk"}


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param(struct.pack("<III", 4, 2, 3) + b"GNU\0\xab\xcd", "abcd", id="a build id"),
        pytest.param(struct.pack("<III", 4, 2**31, 3) + b"GNU\0\xab", "ab", id="cut off"),
        pytest.param(struct.pack("<III", 4, 2, 3) + b"ABC\0\xab\xcd", "", id="another owner"),
        pytest.param(b"", "", id="none"),
    ],
)
def test_the_build_id_is_in_a_note(note: bytes, expected: str) -> None:
    """The build id is read from the ELF note, as /sys/module/NAME/notes shows it."""
    assert parse_build_id(note, little_endian=True) == expected


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
    with pytest.raises(InvalidModule, match="4 bytes for 2 names"):
        parse_extended_versions(bytes(4), b"a\0b\0", little_endian=True)


def test_modinfo_keys_may_repeat() -> None:
    """Aliases and namespaces come once per entry; padding and text without a key are nothing."""
    assert parse_modinfo(b"alias=pci:a\0\0\0alias=b=c\0nothing\0") == {"alias": ["pci:a", "b=c"]}
