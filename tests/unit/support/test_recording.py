"""What a test ran on, as the running parts tell it."""

import pytest

from tests.recording import Say, as_property, of_engine, of_node, plain
from tests.support.records import Found


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        pytest.param("6.12.57+deb13-amd64", "6.12.57+deb13-amd64", id="Debian's"),
        pytest.param("6.1.0-57-cloud-amd64", "6.1.0-57-cloud-amd64", id="Debian's for clouds"),
        pytest.param("6.18.4-of-a-provider", "6.18.4", id="that of the machine around"),
    ],
)
def test_a_node_tells_system_kernel_runtime_and_kubelet(kernel: str, told: str) -> None:
    """As its kubelet reports it, without what distributions add to versions."""
    info = {
        "osImage": "Debian GNU/Linux 13 (trixie)",
        "kernelVersion": kernel,
        "containerRuntimeVersion": "containerd://1.7.24~ds1",
        "kubeletVersion": "v1.20.2-dirty",
    }
    assert of_node(info) == Found.of(
        "node",
        {
            "system": "Debian GNU/Linux 13 (trixie)",
            "kernel": told,
            "runtime": "containerd 1.7.24",
            "Kubernetes": "1.20.2",
        },
    )


@pytest.mark.parametrize(
    ("status", "storage"),
    [
        pytest.param([["Backing Filesystem", "extfs"]], "overlay2", id="its own"),
        pytest.param([["driver-type", "io.containerd.snapshotter.v1"]], "overlay2 (containerd)", id="containerd's"),
        pytest.param(None, "overlay2", id="none told"),
    ],
)
def test_an_engine_tells_its_image_store(status: list[list[str]] | None, storage: str) -> None:
    """With the versions of its API."""
    version = {"Version": "28.5.1+dfsg1", "ApiVersion": "1.51", "MinAPIVersion": "1.24"}
    found = of_engine(version, {"Driver": "overlay2", "DriverStatus": status})
    assert found == Found.of("engine", {"engine": "Docker Engine 28.5.1", "API": "1.24 to 1.51", "storage": storage})


@pytest.mark.parametrize(
    ("version", "cut"), [("v1.36.2+k3s1", "1.36.2"), ("20.10.24+dfsg1", "20.10.24"), ("odd", "odd")]
)
def test_a_version_is_cut_to_its_numbers(version: str, cut: str) -> None:
    """What is no version stays."""
    assert plain(version) == cut


def test_a_part_is_written_on_one_line() -> None:
    """As a property of a JUnit file."""
    name, value = as_property(Found.of("node", {"kernel": "6.1.0-57-amd64", "Kubernetes": "1.20"}))
    assert (name, value) == ("tested on node", "{kernel: 6.1.0-57-amd64, Kubernetes: '1.20'}\n")


def test_any_test_may_say_what_it_ran_on(tested_on: Say) -> None:
    """The fixture is one that this pytest makes without a warning."""
    assert callable(tested_on)
