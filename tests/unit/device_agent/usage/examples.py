"""Cards, processes and pods for tests of use."""

from device_agent.devices.model import OfferedDevice, Unit, share_ids
from device_agent.gpu_state.use import CardUse, ProcessUse, Use
from device_agent.usage.attribution import Allocated
from device_agent.users.pod_resources import Holder

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
MIB = 1 << 20
UID = "11e5bd563c424dbfa1c17b1c0dbb3d6e"


def card(number: int = 0, *processes: ProcessUse, **fields: object) -> CardUse:
    """Make a card of NVIDIA's that uses 1,000 MiB of 40,960, half of the time."""
    made = CardUse(
        id=f"GPU-{number}",
        pci=f"0000:{0x3B + number:02x}:00.0",
        driver="nvidia",
        index=number,
        name="NVIDIA A100-SXM4-40GB",
        values={"memory_used": 1000 * MIB, "memory_total": 40960 * MIB, "busy_percent": 50},
        processes=processes,
    )
    return made._replace(**fields)  # type: ignore[arg-type] # names of its fields


def instance(number: int, of: int = 0, **fields: object) -> CardUse:
    """Make a MIG device of a card."""
    made = card(of, id=f"MIG-{of}-{number}", index=number, parent=f"GPU-{of}", profile="1g.5gb", gi=number)
    return made._replace(**{"values": {"memory_used": 100 * MIB}, **fields})  # type: ignore[arg-type] # as above


def amd(number: int = 0, *processes: ProcessUse) -> CardUse:
    """Make a card of another vendor's."""
    pci = f"0000:{3 + number:02x}:00.0"
    return card(number, *processes, id=pci, pci=pci, driver="amdgpu", name="")


def process(pod: str, memory: int | None = 100 * MIB, busy: float | None = 10, pid: int = 4711) -> ProcessUse:
    """Make a process of a pod in the namespace ``default``."""
    return ProcessUse(pid, 1000 + pid, UID, f"default/{pod}", memory, busy)


def use(*cards: CardUse, pods: tuple[str, ...] | None = ("a", "b", "c"), **fields: object) -> Use:
    """Make what the container says, of the processes of some pods in the namespace ``default``."""
    asked = None if pods is None else tuple(f"default/{name}" for name in pods)
    return Use("s1", 100.0, cards, (), asked)._replace(**fields)  # type: ignore[arg-type] # as above


def holder(pod: str, container: str = "main") -> Holder:
    """Name a container of a pod in the namespace ``default``."""
    return Holder("default", pod, container)


def held(device: str, pod: str, container: str = "main", **fields: object) -> Allocated:
    """Say that a container has a device: a GPU, a share such as ``GPU-0::1``, or a MIG device."""
    unit = device.partition("::")[0]
    resource = MIG if unit.startswith("MIG") else GPU if unit == device else SHARED
    return Allocated(resource, device, unit, holder(pod, container))._replace(**fields)  # type: ignore[arg-type] # as above


def offers(unit: Unit) -> dict[str, OfferedDevice]:
    """Offer the devices of a unit."""
    return {name: OfferedDevice(id=name, unit=unit) for name in share_ids(unit.id, unit.shares)}
