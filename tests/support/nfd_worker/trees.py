"""Host trees for tests: a few files below a temporary root, or one of the recorded hosts."""

from collections.abc import Mapping
from pathlib import Path

from nfd_worker.host import Host

DATA = Path(__file__).parents[2] / "data"
HOSTS = DATA / "hosts"
RECORDED = tuple(sorted(path.name for path in HOSTS.iterdir() if path.is_dir()))


def host(root: Path, files: Mapping[str, str | bytes]) -> Host:
    """Write files below a root and give the host they make."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Host(str(root))


def recorded(name: str) -> Host:
    """Give a recorded host."""
    return Host(str(HOSTS / name))


def pci_device(address: str, vendor: str, device_class: str = "0x030200") -> dict[str, str]:
    """Write the files of a PCI device: all that each has, the vendor such as ``0x10de``."""
    values = {"class": device_class, "vendor": vendor, "device": "0x2330", "subsystem_vendor": vendor,
              "subsystem_device": "0x16c1"}  # fmt: skip
    return {f"sys/bus/pci/devices/{address}/{name}": f"{value}\n" for name, value in values.items()}
