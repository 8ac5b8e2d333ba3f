"""Lists of kernels: one per line, and what kernel-crawler writes. The entries are shaped as in its published lists."""

import json
from typing import Any

import pytest

from driver_builder.base.errors import ConfigurationError
from driver_builder.prebuild.kernel_list import parse_kernels

POOL = "http://mirrors.example.org/pool/main/l/linux"


def entry(target: str, release: str, *headers: str) -> dict[str, Any]:
    """Make an entry of driverkit's configuration."""
    return {"kernelversion": 1, "kernelrelease": release, "target": target, "headers": list(headers)}


CRAWLED = json.dumps(
    {
        "Debian": [
            entry("debian", "6.1.147-1-amd64", f"{POOL}/linux-headers-6.1.0-38-amd64_6.1.147-1_amd64.deb",
                  f"{POOL}/linux-headers-6.1.0-38-common_6.1.147-1_all.deb",
                  f"{POOL}/linux-kbuild-6.1_6.1.147-1_amd64.deb"),
            entry("debian", "6.1.9-1-amd64", f"{POOL}/linux-headers-6.1.0-4-amd64_6.1.9-1_amd64.deb",
                  f"{POOL}/linux-headers-6.1.0-4-common_6.1.9-1_all.deb"),
        ],
        "Ubuntu": [
            entry("ubuntu-hwe-5.15", "5.15.0-25-hwe-5.15",
                  f"{POOL}/linux-headers-5.15.0-25-generic_5.15.0-25.25~20.04.2_amd64.deb",
                  f"{POOL}/linux-headers-5.15.0-25-generic-64k_5.15.0-25.25~20.04.2_arm64.deb",
                  f"{POOL}/linux-hwe-5.15-headers-5.15.0-25_5.15.0-25.25~20.04.2_all.deb"),
        ],
        "AmazonLinux2": [entry("amazonlinux2", "4.14.273-207.502.amzn2.x86_64", "http://a/kernel-devel.rpm"),
                         entry("amazonlinux2", "4.14.273-207.502.amzn2.aarch64", "http://a/kernel-devel.rpm")],
        "rocky": [entry("rocky", "5.14.0-503.el9_5.x86_64", "http://a/b.rpm"),
                  entry("rocky", "4.18.0-553.el8_10.x86_64", "http://a/b.rpm")],
        "fedora": [entry("fedora", "6.8.9-300.fc40.x86_64", "http://a/b.rpm"), "no entry"],
        "redhat": [entry("redhat", "5.14.0-427.el9.x86_64")],
        "flatcar": [entry("flatcar", "2303.1.1", "https://beta.release.flatcar-linux.net/x.bin.bz2")],
        "odd": "no list",
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("os", "architecture", "kernels"),
    [
        pytest.param("debian:12", "amd64", ("6.1.0-4-amd64", "6.1.0-38-amd64"), id="the release is in the packages"),
        pytest.param("ubuntu:20.04", "amd64", ("5.15.0-25-generic",), id="target with a flavour"),
        pytest.param("ubuntu:20.04", "arm64", ("5.15.0-25-generic-64k",), id="packages of another architecture"),
        pytest.param("amzn:2", "amd64", ("4.14.273-207.502.amzn2.x86_64",), id="target with a version"),
        pytest.param("amzn:2", "arm64", ("4.14.273-207.502.amzn2.aarch64",), id="arm64"),
        pytest.param("rocky:9.5", "amd64", ("5.14.0-503.el9_5.x86_64",), id="major version"),
        pytest.param("fedora:40", "amd64", ("6.8.9-300.fc40.x86_64",), id="fedora"),
        pytest.param("rhel:9.4", "amd64", ("5.14.0-427.el9.x86_64",), id="another name"),
    ],
)
def test_the_kernels_of_one_distribution_are_taken(os: str, architecture: str, kernels: tuple[str, ...]) -> None:
    """As uname -r prints them, each once, in the order of their numbers."""
    os_id, _, os_version = os.partition(":")
    assert parse_kernels(CRAWLED, os_id=os_id, os_version=os_version, architecture=architecture) == kernels


def test_a_file_of_lines() -> None:
    """Comments and empty lines are nothing; the order is that of the numbers."""
    text = "# nodes of today\n6.1.0-10-amd64\n\n6.1.0-9-amd64  # old\n6.1.0-10-amd64\n"
    assert parse_kernels(text, os_id="debian", os_version="12", architecture="amd64") == (
        "6.1.0-9-amd64", "6.1.0-10-amd64",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "os_id", "words"),
    [
        pytest.param("6.1.0-9-amd64\nlatest", "debian", "line 2: 'latest' is not a kernel release", id="no release"),
        pytest.param("[1]", "debian", "not a list.json of kernel-crawler", id="other JSON"),
        pytest.param(CRAWLED, "sles", "no kernel of sles:1 for amd64; it has distributions: amazonlinux2, debian",
                     id="another distribution"),
        pytest.param(CRAWLED, "rocky", "no kernel of rocky:1 for amd64", id="another version"),
        pytest.param(CRAWLED, "flatcar", "releases of Flatcar, not of its kernels", id="flatcar"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_these_kernels_is_wrong_usage(text: str, os_id: str, words: str) -> None:
    """The message says what is there instead."""
    with pytest.raises(ConfigurationError, match=words):
        parse_kernels(text, os_id=os_id, os_version="1", architecture="amd64")
