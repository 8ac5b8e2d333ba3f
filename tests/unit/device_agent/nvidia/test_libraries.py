"""The driver's libraries are found below the folder that drivers export, whatever distribution they come from."""

import os
from pathlib import Path

import pytest

from device_agent.devices.model import BindMount
from device_agent.sources.nvidia.libraries import find_libraries

DRIVER = "/run/nvidia/driver"
ARCH = os.uname().machine
DEBIAN = f"usr/lib/{ARCH}-linux-gnu"


def export(root: Path, *files: str) -> Path:
    """Make a version of a driver's user space, and the link to it."""
    folder = root / "run/nvidia/.driver@550"
    folder.mkdir(parents=True)
    (root / "run/nvidia/driver").symlink_to(".driver@550")
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize("folder", [DEBIAN, f"{DEBIAN}/nvidia/current", "usr/lib64", "usr/lib"])
def test_the_folder_of_the_library_is_mounted(tmp_path: Path, folder: str) -> None:
    """By the path of the link, which an upgrade moves, and read-only."""
    export(tmp_path, f"{folder}/libcuda.so.1", "usr/bin/nvidia-smi")
    found = find_libraries(str(tmp_path), DRIVER)
    assert found.why == ""
    assert found.mounts == (
        BindMount(path=f"{DRIVER}/{folder}", mount_path="/usr/local/nvidia/lib64", read_only=True),
        BindMount(path=f"{DRIVER}/usr/bin", mount_path="/usr/local/nvidia/bin", read_only=True),
    )


def test_a_link_that_leads_nowhere_is_no_library(tmp_path: Path) -> None:
    """Debian's alternatives are absolute links; the library itself is in another folder."""
    folder = export(tmp_path, f"{DEBIAN}/nvidia/current/libcuda.so.1", f"{DEBIAN}/other")
    (folder / DEBIAN / "libcuda.so.1").symlink_to("/etc/alternatives/nowhere--libcuda.so.1")
    assert find_libraries(str(tmp_path), DRIVER).mounts[0].path == f"{DRIVER}/{DEBIAN}/nvidia/current"


def test_a_driver_without_tools_brings_its_libraries(tmp_path: Path) -> None:
    """A folder that is not there would keep the container from starting."""
    export(tmp_path, "usr/lib64/libcuda.so.1")
    (mount,) = find_libraries(str(tmp_path), DRIVER).mounts
    assert mount.mount_path == "/usr/local/nvidia/lib64"


@pytest.mark.parametrize("files", [(), ("usr/lib64/libcuda.so.550.54.15",), ("usr/lib64/libcuda.so.1/folder",)])
def test_what_was_looked_for_is_named(tmp_path: Path, files: tuple[str, ...]) -> None:
    """With each folder, as an admin sees them on the node."""
    export(tmp_path, *files)
    found = find_libraries(str(tmp_path), DRIVER)
    assert found.mounts == ()
    assert found.why == (
        f"there is no libcuda.so.1 below {DRIVER} of the node: looked in "
        f"{DEBIAN}, {DEBIAN}/nvidia/current, usr/lib64, usr/lib"
    )


def test_no_driver_is_exported(tmp_path: Path) -> None:
    """The link is not there yet."""
    assert "there is no libcuda.so.1" in find_libraries(str(tmp_path), DRIVER).why
