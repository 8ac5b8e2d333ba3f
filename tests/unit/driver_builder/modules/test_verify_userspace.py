"""A user space is of the modules' version, and no larger than asked for; otherwise nothing is pushed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages
from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module
from driver_builder.modules.verify_userspace import check_userspace
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.kernel_modules import PROBE

PACKAGES = UserspacePackages(pins=(("libedu1", "1:1.2.3-4"), ("edu-tools", "1.2.3-1")))
ARCHIVE = UserspaceArchive(url="https://a/b", sha256="0" * 64)
KERNEL = KernelVersion("6.1.0-55-cloud-amd64")
REQUEST = BuildRequest(
    recipe="k",
    driver=DriverKey("team/edu"),
    version="9",
    target=KernelTarget(KERNEL, "debian", "12", "amd64"),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={}),
    modules=(ModuleSpec(name="dw_probe"),),
)
FILES = {"userspace/lib/libedu.so.1.2.3": b"library", "userspace/VERSION": b"1.2.3\nand more\n", "other": b"1.2.3"}


def module(version: str = "1.2.3") -> KernelModule:
    """A module with this MODULE_VERSION."""
    return replace(parse_kernel_module(PROBE, "dw_probe.ko"), version=version)


def check(
    directory: Path,
    userspace: Userspace | None,
    *,
    files: Mapping[str, bytes] = FILES,
    modules: tuple[str, ...] = ("1.2.3",),
) -> None:
    """Check an image with these files."""
    directory.mkdir(exist_ok=True)
    image = read_image_archive(docker_20(directory / "image.tar", [tar_of(files)]), directory)
    check_userspace(
        image,
        replace(REQUEST, userspace=userspace),
        [replace(module(version), name=f"dw_probe{number or ''}") for number, version in enumerate(modules)],
    )


@pytest.mark.parametrize(
    "userspace",
    [
        pytest.param(None, id="none"),
        pytest.param(Userspace(content=PACKAGES), id="packages"),
        pytest.param(Userspace(content=PACKAGES, version_file="VERSION"), id="packages by a file"),
        pytest.param(Userspace(content=ARCHIVE, version_file="VERSION"), id="first line"),
        pytest.param(Userspace(content=ARCHIVE, version_file="lib/libedu.so.1.2.3"), id="name"),
    ],
)
def test_the_same_version_fits(userspace: Userspace | None, tmp_path: Path) -> None:
    """Whatever it is read from."""
    check(tmp_path, userspace)


@pytest.mark.parametrize(
    ("userspace", "words"),
    [
        (
            Userspace(content=PACKAGES),
            "the user space has version 1.2.3 (packages libedu1=1:1.2.3-4 edu-tools=1.2.3-1)",
        ),
        (Userspace(content=ARCHIVE, version_file="VERSION"), "the user space has version 1.2.3 (VERSION)"),
        (Userspace(content=ARCHIVE, version_file="lib/libedu.so.1.2.3"), "version 1.2.3 (lib/libedu.so.1.2.3)"),
    ],
)
def test_another_version_is_refused_and_both_are_named(userspace: Userspace, words: str, tmp_path: Path) -> None:
    """With a reason of its own."""
    with pytest.raises(VerificationFailed) as refused:
        check(tmp_path, userspace, modules=("1.2.4",))
    assert refused.value.reason is Reason.USERSPACE_MISMATCH
    assert words in str(refused.value)
    assert "the modules have 1.2.4 (module dw_probe)" in str(refused.value)


def test_one_module_has_to_have_it(tmp_path: Path) -> None:
    """Helpers often have none, or one of their own."""
    check(tmp_path, Userspace(content=PACKAGES), modules=("", "7", "1.2.3"))


def test_without_one_the_drivers_version_counts(tmp_path: Path) -> None:
    """Many modules have no MODULE_VERSION."""
    files = {"userspace/VERSION": b"9"}
    check(tmp_path, Userspace(content=ARCHIVE, version_file="VERSION"), files=files, modules=("",))
    with pytest.raises(VerificationFailed, match=r"but the modules have 9 \(spec\.version\)"):
        check(tmp_path / "b", Userspace(content=PACKAGES), modules=("",))


@pytest.mark.parametrize(
    ("userspace", "files", "reason", "words"),
    [
        pytest.param(
            Userspace(content=PACKAGES),
            {"other": b"1"},
            Reason.IMAGE_INVALID,
            "no files below /userspace",
            id="left out by a template",
        ),
        pytest.param(
            Userspace(content=ARCHIVE, version_file="VERSION", size_limit=10),
            FILES,
            Reason.IMAGE_INVALID,
            "more than the 10 bytes of spec.userspace.sizeLimit",
            id="too large",
        ),
        pytest.param(
            Userspace(content=ARCHIVE, version_file="lib/libedu.so.1.2.4"),
            FILES,
            Reason.USERSPACE_MISMATCH,
            "the user space has no file lib/libedu.so.1.2.4",
            id="no such file",
        ),
        pytest.param(
            Userspace(content=ARCHIVE, version_file="VERSION"),
            {"userspace/VERSION": b"\nabc"},
            Reason.USERSPACE_MISMATCH,
            "version none (VERSION)",
            id="an empty line",
        ),
    ],
)
def test_what_is_not_a_user_space(
    userspace: Userspace, files: Mapping[str, bytes], reason: Reason, words: str, tmp_path: Path
) -> None:
    """It says what is missing."""
    with pytest.raises(VerificationFailed) as refused:
        check(tmp_path, userspace, files=files)
    assert (refused.value.reason, words in str(refused.value)) == (reason, True)
