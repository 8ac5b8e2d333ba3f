"""The modules in an image, with as much memory as one of them takes."""

import tracemalloc
from pathlib import Path

import pytest

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.archives.image_layers import store_layer
from driver_builder.base.errors import InvalidModule, InvalidSymvers, VerificationFailed
from driver_builder.modules import image_modules, module_elf, symvers
from driver_builder.modules.image_modules import read_modules
from driver_builder.modules.kernel_module import parse_kernel_module
from driver_builder.modules.symvers import parse_module_symvers
from tests.support.driver_builder.image_tars import tar_of
from tests.support.driver_builder.kernel_modules import HELPER, PROBE

FOLDER = "/lib/modules/6.1"
FILES = {f"{FOLDER}/b.ko": PROBE, f"{FOLDER}/a.ko": HELPER, f"{FOLDER}/modules.dep": b"a.ko:\n"}


def image_of(files: dict[str, bytes], folder: Path) -> ImageArchive:
    """An image of one layer."""
    tar = tar_of({path.lstrip("/"): content for path, content in files.items()})
    return ImageArchive(config={}, layers=(store_layer([tar], folder / "layer.tar.gz"),))


def test_modules_and_indexes_are_found(tmp_path: Path) -> None:
    """Sorted by path, whatever their order in the layer."""
    found = read_modules(image_of(FILES, tmp_path), FOLDER)
    assert list(found.modules) == [f"{FOLDER}/a.ko", f"{FOLDER}/b.ko"]
    assert found.indexes == {f"{FOLDER}/modules.dep": b"a.ko:\n"}


def test_what_is_neither_is_not_read(tmp_path: Path) -> None:
    """32 MB of zeros take no memory: they are 32 kB in a registry."""
    image = image_of({**FILES, f"{FOLDER}/x.bin": bytes(32 << 20)}, tmp_path)
    tracemalloc.start()
    try:
        read_modules(image, FOLDER)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        pytest.param("MAX_MODULES", "more than 1 modules: install only what the driver needs", id="modules"),
        pytest.param("MAX_WORDS", "modules with more symbols and aliases", id="words"),
        pytest.param("MAX_INDEX", f"{FOLDER}/modules.dep has 6 bytes; the limit for such a file is 1", id="index"),
    ],
)
def test_an_image_with_more_than_any_driver_is_refused(
    bound: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what there is too much of."""
    monkeypatch.setattr(image_modules, bound, 1)
    with pytest.raises(VerificationFailed, match=message):
        read_modules(image_of(FILES, tmp_path), FOLDER)


@pytest.mark.parametrize("bound", ["MAX_SECTION", "MAX_SYMBOLS", "MAX_SYMBOL_NAMES"])
def test_a_module_with_tables_that_no_module_has_is_refused(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes texts takes many times its size."""
    monkeypatch.setattr(module_elf, bound, 1)
    with pytest.raises(InvalidModule, match=r"the limit is 1|more than 1"):
        parse_kernel_module(PROBE, "dw_probe.ko")


@pytest.mark.parametrize("bound", ["MAX_SYMVERS", "MAX_SYMBOLS"])
def test_a_symvers_that_no_kernel_has_is_refused(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its lines become values."""
    monkeypatch.setattr(symvers, bound, 1)
    with pytest.raises(InvalidSymvers, match="the limits"):
        parse_module_symvers("0x1\ta\tvmlinux\tEXPORT_SYMBOL\n0x2\tb\tvmlinux\tEXPORT_SYMBOL\n")
