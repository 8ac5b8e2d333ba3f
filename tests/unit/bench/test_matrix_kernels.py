"""Which kernels come first in the driver matrix, and where else a module is tried."""

from bench.matrix.kernels import elsewhere, in_order, parse_headers
from testbed.kernels import flavour_of

SEARCH = """\
linux-headers-6.1.0-47-amd64 - Header files for Linux 6.1.0-47-amd64
linux-headers-6.1.0-47-cloud-amd64 - Header files
linux-headers-6.1.0-47-rt-amd64 - Header files
linux-headers-6.1.0-9-cloud-amd64 - Header files
linux-headers-6.12-cloud-amd64 - Header files for the newest of a series
linux-headers-6.12.117+deb12-cloud-amd64 - Header files
linux-headers-amd64 - Header files (meta-package)
"""

RELEASES = [
    f"{abi}{flavour}"
    for abi in ("6.1.0-9", "6.1.0-47", "6.1.0-55", "6.1.0-56", "6.12.107+deb12", "6.12.117+deb12")
    for flavour in ("-amd64", "-cloud-amd64", "-rt-amd64")
]


def test_headers_are_found_by_kernel_release() -> None:
    """Packages of a whole series are no kernels; the order is that of the numbers."""
    assert parse_headers(SEARCH) == [
        "6.1.0-9-cloud-amd64",
        "6.1.0-47-amd64",
        "6.1.0-47-cloud-amd64",
        "6.1.0-47-rt-amd64",
        "6.12.117+deb12-cloud-amd64",
    ]


def test_a_release_has_a_flavour() -> None:
    """Whatever the numbers before it look like."""
    names = ["6.1.0-56-cloud-amd64", "6.1.0-56-amd64", "6.12.117+deb12-rt-amd64", "6.12.117+deb12-amd64"]
    assert [flavour_of(name) for name in names] == ["cloud-amd64", "amd64", "rt-amd64", "amd64"]


def test_the_kernels_that_tell_most_come_first() -> None:
    """Newest and oldest of the nodes' series, the newest of the next one, then the ABIs between, real time last."""
    ordered = in_order(reversed(RELEASES))
    assert ordered[:6] == [
        "6.1.0-56-cloud-amd64",
        "6.1.0-56-amd64",
        "6.1.0-9-cloud-amd64",
        "6.12.117+deb12-cloud-amd64",
        "6.1.0-55-cloud-amd64",
        "6.1.0-47-cloud-amd64",
    ]
    assert sorted(ordered) == sorted(RELEASES)
    assert all("-rt-" in release for release in ordered[-6:])


def test_modules_are_tried_on_the_nearest_kernel_and_on_one_that_differs() -> None:
    """The nearest may have the same CRCs; then there is a second one, which has not."""
    layouts = {"6.1.0-54-amd64": "a", "6.1.0-55-amd64": "b", "6.1.0-56-amd64": "b", "6.1.0-56-cloud-amd64": "c"}
    assert elsewhere("6.1.0-56-amd64", layouts) == ["6.1.0-55-amd64", "6.1.0-54-amd64"]
    assert elsewhere("6.1.0-54-amd64", layouts) == ["6.1.0-55-amd64"]
    assert elsewhere("6.1.0-56-cloud-amd64", layouts) == ["6.1.0-56-amd64"]


def test_a_kernel_alone_has_no_elsewhere() -> None:
    """With a single kernel there is no other kernel to try the driver on."""
    assert elsewhere("6.1.0-56-amd64", {"6.1.0-56-amd64": "b"}) == []
