"""Choosing kernels whose modules refuse each other."""

import pytest

from testbed.errors import TestbedError
from testbed.kernels import choose_releases, parse_candidates, parse_image_packages, parse_symvers, release_key

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
