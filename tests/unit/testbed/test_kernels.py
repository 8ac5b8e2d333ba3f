"""Choosing kernels whose modules refuse each other."""

from pathlib import Path

import pytest

from testbed import kernels
from testbed.errors import TestbedError
from testbed.kernels import (
    KernelPackage,
    choose_releases,
    codename_of,
    module_layout,
    newest_of_each_series,
    parse_candidates,
    parse_image_packages,
    parse_parts,
    parse_symvers,
    release_key,
)

LAYOUTS = {
    "6.1.0-47-cloud-amd64": "0xca",
    "6.1.0-53-cloud-amd64": "0x82",
    "6.1.0-54-cloud-amd64": "0x82",
    "6.1.0-55-cloud-amd64": "0xa3",
    "6.1.0-56-cloud-amd64": "0xa3",
    "6.12.107+deb12-cloud-amd64": "0x2f",
    "6.12.117+deb12-cloud-amd64": "0x2f",
}


def test_releases_are_ordered_by_their_numbers() -> None:
    """9 comes before 10, and 6.1 before 6.12."""
    mixed = ["6.12.1+deb12-cloud-amd64", "6.1.0-10-cloud-amd64", "6.1.0-9-cloud-amd64"]
    assert sorted(mixed, key=release_key) == mixed[::-1]


def test_a_second_build_of_a_debian_release_is_newer_than_the_first() -> None:
    """The numbers of the flavour do not count: those of amd64 are larger than any."""
    second = ["6.12.115+deb13.1-amd64", "6.12.115+deb13-amd64"]
    assert sorted(second, key=release_key) == second[::-1]


def test_the_newest_of_each_series_comes_with_the_own_series_first() -> None:
    """As trixie and its backports have them."""
    offered = ["7.2.9+deb13-amd64", "6.12.118+deb13-amd64", "7.3.4+deb13-amd64", "7.2.12+deb13-amd64"]
    assert newest_of_each_series(offered) == ["6.12.118+deb13-amd64", "7.2.12+deb13-amd64", "7.3.4+deb13-amd64"]


def test_a_kernels_release_tells_where_debian_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree's own kernels say nothing, or its number."""
    monkeypatch.setattr(kernels, "release_codename", lambda: "bookworm")
    names = ["6.1.0-56-amd64", "6.12.117+deb12-cloud-amd64", "6.12.118+deb13-amd64", "6.12.115+deb13.1-rt-amd64"]
    assert [codename_of(name) for name in names] == ["bookworm", "bookworm", "trixie", "trixie"]


def test_the_parts_of_an_image_package_are_those_of_its_kernel() -> None:
    """Up to 6.17 it has the files itself; what is for every kernel is none of them."""
    release = "7.2.12+deb13-amd64"
    shown = (
        f"Package: linux-image-{release}\nDepends: dracut | linux-initramfs-tool, linux-base-{release} (= 7.2.12-1),"
        f" linux-binary-{release} (= 7.2.12-1), linux-modules-{release} (= 7.2.12-1)\n"
        "Pre-Depends: linux-base (>= 4.17~)\n"
    )
    assert parse_parts(shown, release) == [f"linux-{part}-{release}" for part in ("base", "binary", "modules")]
    assert parse_parts("Package: linux-image-x\nDepends: kmod, linux-base (>= 4.12)\n", release) == []


@pytest.mark.parametrize("place", ["boot/{name}-{release}", "usr/lib/modules/{release}/{name}"])
def test_image_and_configuration_are_where_the_packages_have_them(tmp_path: Path, place: str) -> None:
    """In /boot, or beside the modules, which may be below /usr."""
    release = "7.2.12+deb13-cloud-amd64"
    files = {name: tmp_path / place.format(name=name, release=release) for name in ("vmlinuz", "config")}
    (tmp_path / "lib").symlink_to("usr/lib")
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    kernel = KernelPackage(
        release=release, codename="trixie", version="1", image_package="", headers_package="",
        module_layout_crc="", symvers=tmp_path, tree=tmp_path,
    )  # fmt: skip
    assert (kernel.vmlinuz.read_text(), kernel.config.read_text()) == ("vmlinuz", "config")


def test_a_kernel_without_modversions_takes_modules_of_its_release_only() -> None:
    """It does not export module_layout: its release stands for the CRC."""
    assert module_layout("0xa351f379\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n", "6.12.1") == "0xa351f379"
    assert module_layout("0x00000000\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n", "7.3.4") == "7.3.4"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(1, ["6.12.117+deb12-cloud-amd64"], id="one is the newest"),
        pytest.param(2, ["6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64"], id="two are of two series"),
        pytest.param(
            3, ["6.1.0-54-cloud-amd64", "6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64"], id="three differ in CRC"
        ),
        pytest.param(
            4,
            ["6.1.0-47-cloud-amd64", "6.1.0-54-cloud-amd64", "6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64"],
            id="four reach further back",
        ),
    ],
)
def test_chosen_kernels_differ_in_module_layout(count: int, expected: list[str]) -> None:
    """Kernels with equal checksums are never chosen together; the newest is always there."""
    assert choose_releases(LAYOUTS, count) == expected


def test_the_newest_is_chosen_when_there_is_one_series_only() -> None:
    """A machine with one series still gets kernels that refuse each other."""
    layouts = {release: crc for release, crc in LAYOUTS.items() if release.startswith("6.1.")}
    assert choose_releases(layouts, 2) == ["6.1.0-54-cloud-amd64", "6.1.0-56-cloud-amd64"]


def test_too_few_kernels_are_an_error_that_says_so() -> None:
    """The message counts what there is and what was wanted."""
    with pytest.raises(TestbedError, match="only 4 kernels here refuse each other's modules, not 5"):
        choose_releases(LAYOUTS, 5)


def test_no_kernel_at_all_is_an_error() -> None:
    """An empty archive is not an empty choice."""
    with pytest.raises(TestbedError, match="no cloud-amd64 kernel"):
        choose_releases({}, 1)


def test_only_real_kernel_images_are_listed() -> None:
    """Meta packages, unsigned images and debug symbols are not kernels to boot."""
    search = (
        "linux-image-6.1.0-55-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n"
        "linux-image-6.12-cloud-amd64 - Linux for x86-64 cloud (meta-package)\n"
        "linux-image-cloud-amd64 - Linux for x86-64 cloud (meta-package)\n"
        "linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n"
        "linux-image-6.1.0-55-cloud-amd64-unsigned - Linux 6.1 for x86-64 cloud\n"
    )
    assert parse_image_packages(search) == ["6.1.0-9-cloud-amd64", "6.1.0-55-cloud-amd64"]


def test_candidates_come_from_apt_cache_policy() -> None:
    """A package without a candidate is left out."""
    policy = "a:\n  Installed: (none)\n  Candidate: 1.2-3\n  Version table:\nb:\n  Installed: 1\n  Candidate: (none)\n"
    assert parse_candidates(policy) == {"a": "1.2-3"}


def test_symvers_maps_symbols_to_checksums() -> None:
    """The checksum comes first in the file."""
    text = "0xa351f379\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n0x1\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n"
    assert parse_symvers(text) == {"module_layout": "0xa351f379", "kfree": "0x1"}
