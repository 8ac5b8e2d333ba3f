"""How NVML's answers are spelt."""

from hypothesis import given
from hypothesis import strategies as st

from nvml_inventory.questions import pci_address


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31))
def test_pci_addresses_are_spelt_as_sysfs_does(domain: int, bus: int, number: int) -> None:
    """NVML gives eight upper-case digits of the domain."""
    assert pci_address(f"{domain:08X}:{bus:02X}:{number:02X}.0") == f"{domain:04x}:{bus:02x}:{number:02x}.0"
