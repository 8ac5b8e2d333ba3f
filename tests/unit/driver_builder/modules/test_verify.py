"""What is let out of the builder, and what is not: real modules against the real symbols of two kernels."""

import gzip
import lzma
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.symvers import ExportedSymbol
from driver_builder.modules.verify import VerifiedModule, check_modules, verify
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.kernel_modules import HELPER, MAGIC, PROBE, SYMVERS_47, SYMVERS_55, a_module
from tests.support.driver_builder.module_signing import Signer, a_signer

KERNEL = KernelVersion("6.1.0-55-cloud-amd64")
FOLDER = f"lib/modules/{KERNEL}"
REQUEST = BuildRequest(
    recipe="k",
    driver=DriverKey("team/probe"),
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
    f"{FOLDER}/modules.alias": b"alias pci:v00001234d000011E8sv*sd*bc*sc*i* dw_probe\n",
}


def image_of(directory: Path, files: Mapping[str, bytes]) -> ImageArchive:
    """An image with these files."""
    return read_image_archive(docker_20(directory / "image.tar", [tar_of(files)]), directory)


def test_modules_that_fit_are_described(tmp_path: Path) -> None:
    """In load order, with what /sys/module must show once they are loaded."""
    helper, probe = verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers=SYMVERS_55)
    assert helper.name == "dw_helper"
    assert probe == VerifiedModule(
        name="dw_probe",
        path=f"/{FOLDER}/updates/dw_probe.ko",
        srcversion="509CB8B26651F6450DB59D4",
        build_id="8d1c041f9eb3399ee3abc466b9b547028b38f228",
        vermagic="6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions ",
    )


def test_modules_that_nobody_names_are_described_with_what_needs_them(tmp_path: Path) -> None:
    """By name and identity: they are loaded with it, and a change of them is one of the driver."""
    request = replace(REQUEST, modules=(ModuleSpec(name="dw_probe"),))
    (probe,) = verify(image_of(tmp_path, GOOD), request=request, module_symvers=SYMVERS_55)
    (helper,) = verify(
        image_of(tmp_path, GOOD),
        request=replace(REQUEST, modules=(ModuleSpec(name="dw_helper"),)),
        module_symvers=SYMVERS_55,
    )
    assert probe.needs == (("dw_helper", helper.srcversion),)
    assert helper.needs == ()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [pytest.param(".xz", lzma.compress, id="xz"), pytest.param(".gz", gzip.compress, id="gzip")],
)
def test_compressed_modules_are_verified_too(suffix: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """What is compared is what the kernel gets to see."""
    files = {
        path.replace(".ko", f".ko{suffix}"): compress(content) if path.endswith(".ko") else content
        for path, content in GOOD.items()
    }
    files[f"{FOLDER}/modules.dep"] = GOOD[f"{FOLDER}/modules.dep"].replace(b".ko", f".ko{suffix}".encode())
    _, probe = verify(image_of(tmp_path, files), request=REQUEST, module_symvers=SYMVERS_55)
    assert probe.path == f"/{FOLDER}/updates/dw_probe.ko{suffix}"


def without(name: str) -> dict[str, bytes]:
    """The good image without one file."""
    return {path: content for path, content in GOOD.items() if not path.endswith(name)}


def with_probe(change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """The good image with a changed dw_probe."""
    return GOOD | {f"{FOLDER}/updates/dw_probe.ko": change(PROBE)}


F = Reason


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
            F.NO_MODULE_IDENTITY,
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
            with_probe(lambda _: b"#!/bin/sh"), F.IMAGE_INVALID, "dw_probe.ko: it is not a readable ELF", id="no ELF"
        ),
        pytest.param(
            GOOD | {f"{FOLDER}/kernel/dw_probe.ko": PROBE},
            F.IMAGE_INVALID,
            "dw_probe is in the image twice",
            id="twice",
        ),
        pytest.param(without("modules.dep"), F.IMAGE_INVALID, "no .*modules.dep", id="no modules.dep"),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"depends=dw_helper", b"depends=dw_h3lper")),
            F.DEPENDENCY_MISSING,
            "dw_probe depends on dw_h3lper, which is neither in the image",
            id="depends on nothing there",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"import_ns=DW_HELPER", b"import_ns=DW_H3LPER")),
            F.MISSING_NAMESPACE,
            r"dw_probe uses .*: dw_helper_double \(namespace DW_HELPER\)",
            id="namespace not imported",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"license=GPL", b"license=MIT")),
            F.GPL_ONLY_SYMBOL,
            "dw_probe has license 'MIT', and imports symbols .*: dw_helper_double",
            id="not for its license",
        ),
        pytest.param(
            with_probe(lambda ko: ko.replace(b"SMP preempt mod_", b"SMP prempt_ mod_")),
            F.WRONG_VERMAGIC,
            r"lacks preempt \(CONFIG_PREEMPT_BUILD\) and has prempt_, unlike module dw_helper beside it",
            id="another configuration",
        ),
    ],
)
def test_what_does_not_fit_is_refused(files: dict[str, bytes], reason: Reason, message: str, tmp_path: Path) -> None:
    """Each defect has its reason, and a message that names module, symbol and both values."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        verify(image_of(tmp_path, files), request=REQUEST, module_symvers=SYMVERS_55)
    assert caught.value.reason is reason


def test_the_crcs_of_another_abi_are_refused(tmp_path: Path) -> None:
    """The version magic agrees, yet 6.1.0-47 declares its symbols otherwise: the kernel would reject the module."""
    with pytest.raises(VerificationFailed, match=r"module_layout \(expected 0xca916cb2, found 0xa351f379\)") as caught:
        verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers=SYMVERS_47)
    assert caught.value.reason is F.WRONG_SYMBOL_CRC


def test_a_symvers_that_is_none_is_refused(tmp_path: Path) -> None:
    """A template that left something else gets an error."""
    with pytest.raises(VerificationFailed, match=r"Module\.symvers that the build left cannot be read: line 1"):
        verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers="404 page not found")


@pytest.mark.parametrize(
    ("magic", "architecture", "crc", "message"),
    [
        pytest.param(
            "6.1.0-55-cloud-amd64 SMP",
            "amd64",
            1,
            r"'6\.1\.0-55-cloud-amd64 SMP'\) lacks modversions, but kernel .* was built with CONFIG_MODVERSIONS",
            id="built without MODVERSIONS",
        ),
        pytest.param(MAGIC, "amd64", 0, "has modversions, but kernel .* was built without", id="and the reverse"),
        pytest.param(MAGIC, "arm64", 1, "lacks aarch64, which every kernel of arm64 has", id="architecture"),
    ],
)
def test_a_version_magic_must_be_one_of_that_kernel(magic: str, architecture: str, crc: int, message: str) -> None:
    """What is known of the kernel's configuration without its configuration."""
    module = a_module("m", vermagic=magic, architecture={"arm64": "EM_AARCH64", "amd64": "EM_X86_64"}[architecture])
    request = replace(REQUEST, target=KernelTarget(KERNEL, "debian", "12", architecture))
    with pytest.raises(VerificationFailed, match=message) as caught:
        check_modules([module], {"f": ExportedSymbol(crc=crc)}, request=request)
    assert caught.value.reason is F.WRONG_VERMAGIC


OURS, OTHER = a_signer("ours"), a_signer("other")


def signed(by: Signer | None, change: Callable[[bytes], bytes] = bytes) -> dict[str, bytes]:
    """The good image with dw_helper signed by us and dw_probe by another one."""
    probe = by.sign(PROBE) if by else PROBE
    modules = {"updates/dw_helper.ko": OURS.sign(HELPER, by_key_id=True), "updates/dw_probe.ko": change(probe)}
    return GOOD | {f"{FOLDER}/{path}": content for path, content in modules.items()}


SIGNED_REQUEST = replace(REQUEST, signing_certificate=OURS.pem)


def test_modules_by_the_wanted_key_are_let_out(tmp_path: Path) -> None:
    """Whichever way the signature names the key."""
    verified = verify(image_of(tmp_path, signed(OURS)), request=SIGNED_REQUEST, module_symvers=SYMVERS_55)
    assert [module.name for module in verified] == ["dw_helper", "dw_probe"]


@pytest.mark.parametrize(
    ("files", "reason", "message"),
    [
        pytest.param(
            signed(None), F.MODULE_NOT_SIGNED, "module dw_probe is not signed, but a signature by serial", id="not"
        ),
        pytest.param(
            signed(OTHER),
            F.WRONG_MODULE_SIGNER,
            "dw_probe is signed by serial .* of 'other', not by .* of 'ours'",
            id="other",
        ),
        pytest.param(
            signed(OURS, lambda ko: ko.replace(b"version=2.5", b"version=2.6")),
            F.MODULE_SIGNATURE_BROKEN,
            "the signature of module dw_probe by serial .* of 'ours'.* is not over this file",
            id="changed afterwards",
        ),
    ],
)
def test_modules_without_the_wanted_signature_are_refused(
    files: dict[str, bytes], reason: Reason, message: str, tmp_path: Path
) -> None:
    """With Secure Boot the kernel would refuse them: on the node, after the rollout."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        verify(image_of(tmp_path, files), request=SIGNED_REQUEST, module_symvers=SYMVERS_55)
    assert caught.value.reason is reason


def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    """Also an empty one, which is no wish for unsigned modules."""
    for content in (b"", b"key: lost"):
        with pytest.raises(VerificationFailed, match="signing certificate cannot be read") as caught:
            verify(
                image_of(tmp_path, GOOD),
                request=replace(REQUEST, signing_certificate=content),
                module_symvers=SYMVERS_55,
            )
        assert caught.value.reason is F.WRONG_MODULE_SIGNER


def test_a_signature_that_nobody_asked_for_is_no_matter(tmp_path: Path) -> None:
    """Distributions sign with keys of their own."""
    assert verify(image_of(tmp_path, signed(OTHER)), request=REQUEST, module_symvers=SYMVERS_55)


def test_a_module_that_exports_what_the_kernel_does_is_refused(tmp_path: Path) -> None:
    """The kernel would not load it."""
    symvers = SYMVERS_55 + "0x3a11d9a0\tdw_helper_double\tvmlinux\tEXPORT_SYMBOL\t\n"
    with pytest.raises(VerificationFailed, match="dw_helper exports dw_helper_double, which kernel") as caught:
        verify(image_of(tmp_path, GOOD), request=REQUEST, module_symvers=symvers)
    assert caught.value.reason is F.DUPLICATE_SYMBOL
