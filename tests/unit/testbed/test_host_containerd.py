"""What the containerd of this machine's kubelet is configured with, and which one it is."""

import tomllib
from pathlib import Path

import pytest

from testbed.errors import UnsupportedMachineError
from testbed.host_containerd import configuration, hosts_text, parse_version

FOLDER = Path("/testbed/hostd")


def test_everything_of_it_lies_in_the_testbeds_folder() -> None:
    """Several testbeds run side by side."""
    read = tomllib.loads(configuration(FOLDER, Path("/testbed/hostd.sock"), "r/pause:1"))
    runtime, images = read["plugins"]["io.containerd.cri.v1.runtime"], read["plugins"]["io.containerd.cri.v1.images"]
    places = [
        *(read["root"], read["state"], read["grpc"]["address"]),
        *(runtime["cni"]["conf_dir"], images["registry"]["config_path"]),
        runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"],
    ]
    assert [place for place in places if not place.startswith("/testbed/")] == []
    assert images["pinned_images"]["sandbox"] == "r/pause:1"
    assert read["version"] == 3


def test_images_come_from_the_testbeds_registry() -> None:
    """Without TLS."""
    read = tomllib.loads(hosts_text("http://127.0.0.1:5000"))
    assert read["server"] == "http://127.0.0.1:5000"
    assert list(read["host"]) == ["http://127.0.0.1:5000"]


def test_the_newest_version_that_apt_shows_is_taken() -> None:
    """It names the folder of the cache."""
    assert parse_version("Package: containerd\nArchitecture: amd64\nVersion: 2.1.9+ds1-5\n") == "2.1.9+ds1-5"


def test_archives_without_it_are_named() -> None:
    """Sid moves."""
    with pytest.raises(UnsupportedMachineError, match="no containerd of sid"):
        parse_version("")
