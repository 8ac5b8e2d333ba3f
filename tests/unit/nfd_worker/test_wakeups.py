"""Wake-ups: the kubelet's way to change a mounted ConfigMap, and the kernel's device events."""

import os
import select
from pathlib import Path

import pytest

from nfd_worker.wakeups import ConfigWatch, DeviceWatch, watch_config, watch_devices


def is_ready(watch: ConfigWatch | DeviceWatch, seconds: float = 1.0) -> bool:
    """Wait for a descriptor."""
    return bool(select.select([watch], [], [], seconds)[0])


def mounted(directory: Path, content: str, version: str) -> Path:
    """Write a ConfigMap volume as the kubelet does: a directory of its own, and ``..data`` swapped to it."""
    (directory / version).mkdir()
    (directory / version / "nfd-worker.conf").write_text(content)
    (directory / "..data_tmp").symlink_to(version)
    (directory / "..data_tmp").rename(directory / "..data")
    file = directory / "nfd-worker.conf"
    if not file.is_symlink():
        file.symlink_to("..data/nfd-worker.conf")
    return file


def test_the_swap_of_a_config_map_wakes(tmp_path: Path) -> None:
    """The file itself never changes: its directory does."""
    file = mounted(tmp_path, "core: {}", "..v1")
    watch = ConfigWatch(str(file))
    assert not is_ready(watch, 0)
    mounted(tmp_path, "core: {noPublish: true}", "..v2")
    assert is_ready(watch)
    assert watch.drain()
    assert not is_ready(watch, 0)
    watch.close()


def test_writing_the_file_wakes(tmp_path: Path) -> None:
    """An editor on a plain machine works, too."""
    watch = ConfigWatch(str(tmp_path / "nfd-worker.conf"))
    (tmp_path / "nfd-worker.conf").write_text("core: {}")
    assert is_ready(watch)
    watch.close()


def test_a_directory_that_is_not_there_is_told_and_not_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker starts without a configuration file."""
    caplog.set_level("INFO")
    assert watch_config(str(tmp_path / "none" / "nfd-worker.conf")) is None
    assert "SIGHUP reloads it" in caplog.text


def test_a_uevent_of_the_pci_bus_wakes_and_others_do_not() -> None:
    """The kernel sends an event when told to by root, as it does when a device comes."""
    pci = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    other = Path("/sys/devices/virtual/mem/null/uevent")
    if not pci or not os.access(pci[0], os.W_OK) or not other.exists():
        pytest.skip("needs root and a PCI device")
    watch = watch_devices()
    assert watch is not None
    other.write_text("change")
    assert not (is_ready(watch, 0.2) and watch.drain())
    pci[0].write_text("change")
    assert is_ready(watch)
    assert watch.drain()
