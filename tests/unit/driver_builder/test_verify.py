"""What is let out of the builder, and what is not: real modules against the real symbols of two kernels."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driver_builder.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.errors import VerificationFailed, VerificationFailure
from driver_builder.image_archive import ImageArchive, read_image_archive
from driver_builder.kernel_module import ExportedSymbol, parse_kernel_module, parse_module_symvers
from driver_builder.kernels import KernelTarget, KernelVersion
from driver_builder.verify import Mismatch, VerifiedModule, fits, needs_device, parse_modules_dep, verify
from tests.unit.driver_builder.image_tars import docker_20, tar_of

MODULES = Path(__file__).parents[2] / "data" / "modules"
PROBE = (MODULES / "dw_probe.ko").read_bytes()
HELPER = (MODULES / "dw_helper.ko").read_bytes()
SYMVERS_55 = (MODULES / "6.1.0-55-cloud-amd64.symvers").read_text()
SYMVERS_47 = (MODULES / "6.1.0-47-cloud-amd64.symvers").read_text()

KERNEL = KernelVersion("6.1.0-55-cloud-amd64")
FOLDER = f"lib/modules/{KERNEL}"
REQUEST = BuildRequest(
    key="k",
    driver="team/probe",
    version="1",
    target=KernelTarget(KERNEL, "debian", "12", "amd64"),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={}),
    modules=(ModuleSpec(name="dw_helper"), ModuleSpec(name="dw_probe")),
)
GOOD = {
    f"{FOLDER}/updates/dw_helper.ko": HELPER,
    f"{FOLDER}/updates/dw_probe.ko": PROBE,
    f"{FOLDER}/modules.dep": b"updates/dw_probe.ko: updates/dw_helper.ko\nupdates/dw_helper.ko:\n",
}


def image_of(directory: Path, files: Mapping[str, bytes]) -> ImageArchive:
    """An image with these files."""
    return read_image_archive(docker_20(directory / "image.tar", [tar_of(files)]), directory)


def test_modules_that_fit_are_described(tmp_path: Path) -> None:
    """In load order, with what /sys/module must show once they are loaded."""
    helper, probe = verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers=SYMVERS_55)
    assert helper.name == "dw_helper"
    assert not helper.needs_device
    assert probe == VerifiedModule(
        name="dw_probe",
        path=f"/{FOLDER}/updates/dw_probe.ko",
        srcversion="509CB8B26651F6450DB59D4",
        build_id="8d1c041f9eb3399ee3abc466b9b547028b38f228",
        vermagic="6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions ",
        needs_device=True,
    )


def without(name: str) -> dict[str, bytes]:
    """The good image without one file."""
    return {path: content for path, content in GOOD.items() if not path.endswith(name)}


def with_probe(change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """The good image with a changed dw_probe."""
    return GOOD | {f"{FOLDER}/updates/dw_probe.ko": change(PROBE)}


def with_dep(text: bytes) -> dict[str, bytes]:
    """The good image with another modules.dep."""
    return GOOD | {f"{FOLDER}/modules.dep": text}


F = VerificationFailure


@pytest.mark.parametrize(
    ("files", "reason", "message"),
    [
        pytest.param(
            {}, F.MODULE_MISSING, f"no module dw_helper, dw_probe below /{FOLDER} .found no module", id="empty"
        ),
        pytest.param(
            without("dw_probe.ko"), F.MODULE_MISSING, "no module dw_probe .*found dw_helper", id="one is missing"
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"vermagic=6.1.0-55", b"vermagic=6.1.0-47")),
            F.WRONG_VERMAGIC,
            "dw_probe was built for kernel 6.1.0-47-cloud-amd64, not for 6.1.0-55-cloud-amd64",
            id="other kernel",
        ),
        pytest.param(
            with_probe(lambda ko: ko[:18] + b"\xb7\x00" + ko[20:]),
            F.WRONG_ARCHITECTURE,
            "dw_probe is for EM_AARCH64, but amd64 needs EM_X86_64",
            id="other architecture",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"srcversion=", b"srcwersion=").replace(b"build-id\0", b"build-ix\0")),
            F.NO_IDENTITY,
            "dw_probe has neither srcversion nor build id",
            id="no identity",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"dw_helper_double\0", b"dw_helper_triple\0")),
            F.MISSING_SYMBOL,
            "dw_probe imports symbols that kernel 6.1.0-55-cloud-amd64 does not offer: dw_helper_triple",
            id="a symbol that nobody exports",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(bytes.fromhex("a0d9113a"), bytes.fromhex("a1d9113a"))),
            F.WRONG_SYMBOL_CRC,
            r"dw_probe was .*: dw_helper_double \(expected 0x3a11d9a0, found 0x3a11d9a1\)",
            id="other CRC than the module beside it",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"__versions\0", b"__wersions\0")),
            F.WRONG_SYMBOL_CRC,
            r"__fentry__ \(expected 0xbdfb6dbb, found no CRC\), .* and 2 more",
            id="built without MODVERSIONS",
        ),
        pytest.param(
            with_probe(lambda _: b"#!/bin/sh"), F.IMAGE_INVALID, "dw_probe.ko is no readable ELF", id="no ELF"
        ),
        pytest.param(
            GOOD | {f"{FOLDER}/kernel/dw_probe.ko": PROBE},
            F.IMAGE_INVALID,
            "dw_probe is in the image twice",
            id="twice",
        ),
        pytest.param(without("modules.dep"), F.IMAGE_INVALID, "no .*modules.dep; run depmod", id="no modules.dep"),
        pytest.param(
            with_dep(b"updates/dw_helper.ko:\n"),
            F.IMAGE_INVALID,
            "does not list .*dw_probe.ko",
            id="depmod ran too early",
        ),
        pytest.param(
            with_dep(b"updates/dw_helper.ko:\nupdates/dw_probe.ko:\n"),
            F.IMAGE_INVALID,
            "does not give dw_helper as needed by",
            id="dependency not listed",
        ),
        pytest.param(
            with_dep(GOOD[f"{FOLDER}/modules.dep"].replace(b"dw_helper.ko\n", b"dw_helper.ko kernel/gone.ko\n")),
            F.IMAGE_INVALID,
            "names kernel/gone.ko, which the image does not have",
            id="dependency not there",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    files: dict[str, bytes], reason: VerificationFailure, message: str, tmp_path: Path
) -> None:
    """Each defect has its reason, and a message that names module, symbol and both values."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        verify(image_of(tmp_path, files), request=REQUEST, module_symvers=SYMVERS_55)
    assert caught.value.reason is reason


def test_the_crcs_of_another_abi_are_refused(tmp_path: Path) -> None:
    """The version magic agrees, yet 6.1.0-47 declares its symbols otherwise: the kernel would refuse the module."""
    with pytest.raises(VerificationFailed, match=r"module_layout \(expected 0xca916cb2, found 0xa351f379\)") as caught:
        verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers=SYMVERS_47)
    assert caught.value.reason is F.WRONG_SYMBOL_CRC


def test_a_symvers_that_is_none_is_refused(tmp_path: Path) -> None:
    """A template that left something else is told so."""
    with pytest.raises(VerificationFailed, match=r"Module\.symvers that the build left cannot be read: line 1"):
        verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers="404 page not found")


HELPER_MODULE = parse_kernel_module(HELPER, "dw_helper.ko")
HELPER_CRCS = {name: ExportedSymbol(crc, "") for name, crc in HELPER_MODULE.crcs.items()}


@pytest.mark.parametrize(
    ("symvers", "expected"),
    [
        pytest.param(HELPER_CRCS, [], id="its own kernel"),
        pytest.param(
            HELPER_CRCS | {"__fentry__": ExportedSymbol(1, "")},
            [Mismatch(symbol="__fentry__", expected=1, found=0xBDFB6DBB)],
            id="changed symbol",
        ),
        pytest.param(
            {name: symbol for name, symbol in HELPER_CRCS.items() if name != "__fentry__"},
            [Mismatch(symbol="__fentry__", expected=None, found=0xBDFB6DBB)],
            id="removed symbol",
        ),
        pytest.param({name: ExportedSymbol(0, "") for name in HELPER_CRCS}, [], id="kernel without MODVERSIONS"),
    ],
)
def test_fitting_is_a_question_of_symbols_only(symvers: dict[str, ExportedSymbol], expected: list[Mismatch]) -> None:
    """The preflight asks the same of a kernel that runs nowhere yet."""
    assert fits(HELPER_MODULE, symvers) == expected


def test_a_weak_symbol_may_be_missing() -> None:
    """The kernel leaves an unresolved weak symbol empty and loads the module."""
    module = replace(HELPER_MODULE, weak=frozenset({"optional"}))
    assert fits(module, HELPER_CRCS) == []


def test_the_cloud_kernels_of_two_abis_differ_in_what_the_probe_uses() -> None:
    """The data behind these tests: real lines of two Debian kernels."""
    probe = parse_kernel_module(PROBE, "dw_probe.ko")
    changed = {mismatch.symbol for mismatch in fits(probe, parse_module_symvers(SYMVERS_47))}
    assert {"module_layout", "_dev_info", "dw_helper_double"} <= changed
    assert "__fentry__" not in changed


@pytest.mark.parametrize(
    ("aliases", "expected"),
    [
        pytest.param((), False, id="none"),
        pytest.param(("pci:v00001234d000011E8sv*sd*bc*sc*i*",), True, id="pci"),
        pytest.param(("fs-ext4", "usb:v046Dp*"), True, id="one of several"),
        pytest.param(("acpi*:PNP0C0A:*", "platform:snd-aloop"), False, id="buses that do not announce their devices"),
        pytest.param(("devname:v4l2loopback", "char-major-10-239"), False, id="device nodes"),
        pytest.param(("cpu:type:x86,ven*fam*mod*:feature:*0099*",), False, id="a feature of the CPU"),
        pytest.param(("pci",), False, id="no bus without a colon"),
    ],
)
def test_a_module_that_binds_to_a_bus_needs_a_device(aliases: tuple[str, ...], expected: bool) -> None:
    """Loaded without its device, such a module has proven nothing yet."""
    assert needs_device(aliases) is expected


def test_modules_dep_maps_each_module_to_what_it_needs() -> None:
    """Paths are relative to the file; a module that needs nothing has an empty list."""
    assert parse_modules_dep("a.ko: b.ko c.ko\nb.ko:\n\n") == {"a.ko": ("b.ko", "c.ko"), "b.ko": ()}
