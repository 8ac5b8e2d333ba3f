"""Module.symvers as values."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import InvalidSymvers
from driver_builder.modules.symvers import (
    ExportedSymbol,
    has_crcs,
    owner_names,
    parse_module_symvers,
    render_module_symvers,
)
from tests.support.driver_builder.kernel_modules import SYMVERS_55

NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=55)
OWNERS = st.text(st.sampled_from("abcdefgh_0123"), min_size=1)
CRCS = st.integers(0, 2**32 - 1)
SYMBOLS = st.builds(
    ExportedSymbol, crc=CRCS, owner=OWNERS, namespace=NAMES.filter(lambda text: "EXPORT" not in text) | st.just(""),
    is_gpl_only=st.booleans(),
)  # fmt: skip


def export_type(symbol: ExportedSymbol) -> str:
    """The word in the fourth column."""
    return "EXPORT_SYMBOL_GPL" if symbol.is_gpl_only else "EXPORT_SYMBOL"


def test_a_real_symvers_is_read() -> None:
    """The lines of a Debian kernel's own Module.symvers."""
    assert parse_module_symvers(SYMVERS_55)["module_layout"] == ExportedSymbol(crc=0xA351F379)


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        pytest.param("4.18.0-553.el8", "0x0000002a\tf\tofed\tEXPORT_SYMBOL_GPL\n", id="without namespaces"),
        pytest.param("5.4.0-1-generic", "0x0000002a\tf\tNS\tofed\tEXPORT_SYMBOL_GPL\n", id="namespace before owner"),
        pytest.param("6.1.0-1-amd64", "0x0000002a\tf\tofed\tEXPORT_SYMBOL_GPL\tNS\n", id="namespace last"),
    ],
)
def test_symbols_are_written_as_the_kernels_modpost_reads_them(kernel: str, line: str) -> None:
    """By its release."""
    symbol = ExportedSymbol(crc=42, owner="ofed", namespace="NS", is_gpl_only=True)
    assert render_module_symvers({"f": symbol}, kernel) == line


@given(st.dictionaries(NAMES, SYMBOLS))
def test_what_is_written_can_be_read(symbols: dict[str, ExportedSymbol]) -> None:
    """In the form of newer kernels nothing is lost."""
    assert parse_module_symvers(render_module_symvers(symbols, "6.1.0")) == symbols


@given(st.dictionaries(NAMES, SYMBOLS))
def test_every_line_comes_back(symbols: dict[str, ExportedSymbol]) -> None:
    """CRC, owner, export type and namespace of each symbol."""
    text = "".join(
        f"{symbol.crc:#010x}\t{name}\tdrivers/x/{symbol.owner}\t{export_type(symbol)}\t{symbol.namespace}\n"
        for name, symbol in symbols.items()
    )
    assert parse_module_symvers(text) == symbols


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("0x1\ta\tvmlinux\tEXPORT_SYMBOL", ExportedSymbol(crc=1), id="before 5.4: no namespace"),
        pytest.param(
            "0x1\ta\tNS\tdrivers/b-c\tEXPORT_SYMBOL_GPL",
            ExportedSymbol(crc=1, owner="b_c", namespace="NS", is_gpl_only=True),
            id="5.4: the namespace before the owner",
        ),
        pytest.param(
            "0x1\ta\t\tvmlinux\tEXPORT_SYMBOL", ExportedSymbol(crc=1), id="5.4: an empty namespace before the owner"
        ),
        pytest.param(
            "0x1\ta\tdrivers/b-c\tEXPORT_SYMBOL_GPL\tmodule:kvm-amd",
            ExportedSymbol(crc=1, owner="b_c", namespace="module:kvm-amd", is_gpl_only=True),
            id="since 5.6",
        ),
        pytest.param("00000000\ta\tvmlinux\tEXPORT_SYMBOL\t\r", ExportedSymbol(crc=0), id="no CRC"),
    ],
)
def test_each_age_of_kernels_orders_the_columns_its_way(line: str, expected: ExportedSymbol) -> None:
    """What was written, by scripts/mod/modpost.c of that age."""
    assert parse_module_symvers(line) == {"a": expected}


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("<html>", id="a web page"),
        pytest.param("0x1 a vmlinux", id="blanks for tabs"),
        pytest.param("0x1\ta", id="cut off"),
        pytest.param("0x_1\ta\tvmlinux", id="a CRC that only Python reads"),
        pytest.param("0x1\t\tvmlinux", id="no symbol"),
    ],
)
def test_a_text_that_is_no_symvers_is_refused(line: str) -> None:
    """An invalid Module.symvers is an error that names the line."""
    with pytest.raises(InvalidSymvers, match="line 2"):
        parse_module_symvers(f"\n{line}\n")


@given(st.text(st.sampled_from("0x1fa\t\n \r_é\0EXPORT_SYMBOLGPL"), max_size=300))
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever a template leaves in the place of Module.symvers."""
    with contextlib.suppress(InvalidSymvers):
        parse_module_symvers(text)


def test_a_whole_kernel_is_read_quickly() -> None:
    """Distribution kernels export up to forty thousand symbols."""
    text = "".join(f"0x{number:08x}\tsymbol_{number}\tvmlinux\tEXPORT_SYMBOL\t\n" for number in range(40_000))
    start = time.thread_time()
    assert len(parse_module_symvers(text)) == 40_000
    assert time.thread_time() - start < 1


def test_what_a_symvers_says_of_its_kernel() -> None:
    """Whether it has MODVERSIONS, and which modules it has."""
    symbols = {"a": ExportedSymbol(crc=0, owner="drm"), "b": ExportedSymbol(crc=0)}
    assert not has_crcs(symbols)
    assert has_crcs(symbols | {"c": ExportedSymbol(crc=1)})
    assert owner_names(symbols) == {"drm", "vmlinux"}
