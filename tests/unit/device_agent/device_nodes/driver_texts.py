"""What NVIDIA's driver and the kernel write to /proc, as text."""

from device_agent.device_nodes.values import CardFiles, Wanted
from device_agent.device_nodes.wanted import wanted_nodes

DEVICES = """\
Character devices:
  1 mem
  4 /dev/vc/0
  4 tty
195 nvidia
195 nvidia-modeset
195 nvidiactl
234 nvidia-nvswitch
236 nvidia-caps
511 nvidia-uvm

Block devices:
  8 sd
259 blkext
"""
"""Of a driver since 550."""

DEVICES_BEFORE_550 = (
    "Character devices:\n  1 mem\n195 nvidia-frontend\n236 nvidia-caps\n511 nvidia-uvm\n\nBlock devices:\n"
)

PARAMS = """\
ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 44
DeviceFileMode: 432
InitializeSystemMemoryAllocations: 1
RegistryDwords: ""
RmMsg: ""
TemporaryFilePath: ""
"""
"""Mode 0660 and group 44."""

INFORMATION = """\
Model: \t\t NVIDIA A100-PCIE-40GB
IRQ:   \t\t 16
GPU UUID: \t GPU-eb2b5b8e-1a1f-3b6d-9f6f-d77b4f0f0a3c
Video BIOS: \t 92.00.25.00.08
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t 0000:3b:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""

ACCESS = "DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: {modify}\n"

CAPABILITIES = {
    "mig/config": ACCESS.format(minor=1, mode=256, modify=1),
    "mig/monitor": ACCESS.format(minor=2, mode=292, modify=1),
    "gpu0/mig/gi1/access": ACCESS.format(minor=12, mode=292, modify=1),
    "gpu0/mig/gi1/ci0/access": ACCESS.format(minor=13, mode=292, modify=1),
}


def card(minor: object = 0, pci: str = "0000:3b:00.0") -> CardFiles:
    """Return what the driver says of a card."""
    return CardFiles(pci, INFORMATION.format(minor=minor))


def wanted(devices: str = DEVICES, params: str = PARAMS, *, minors: tuple[int, ...] = (0,)) -> Wanted:
    """Return the nodes of a driver with some cards and an instance of MIG."""
    cards = [card(minor, f"0000:3b:{minor:02x}.0") for minor in minors]
    return wanted_nodes(devices, params, cards, CAPABILITIES)
