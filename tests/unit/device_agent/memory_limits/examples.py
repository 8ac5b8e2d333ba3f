"""Uses, holders and what was given, as small as tests want them."""

from collections.abc import Mapping, Sequence

from device_agent.allocations.given import Allocation, Given
from device_agent.devices.model import unit_of
from device_agent.gpu_state.use import CardUse, ProcessUse, Use
from device_agent.usage.attribution import Allocated
from device_agent.users.pod_resources import Holder

GIB = 1 << 30
CARD, OTHER_CARD = "GPU-0", "GPU-1"
SHARED, WHOLE = "nvidia.com/gpu.shared", "nvidia.com/gpu"
A, B = "team/a", "team/b"
UIDS = {A: "a" * 32, B: "b" * 32}


def process(pid: int, gib: float | None, pod: str = A, uid: str = "") -> ProcessUse:
    """Make a process of a pod with so many GiB of a card; None: not known."""
    memory = None if gib is None else int(gib * GIB)
    return ProcessUse(pid=pid, start=1000 + pid, uid=uid or UIDS[pod], pod=pod, memory=memory)


def card(*processes: ProcessUse, name: str = CARD, total: float | None = 40, parent: str = "") -> CardUse:
    """Make a card with so many GiB."""
    values: Mapping[str, float] = {} if total is None else {"memory_total": total * GIB}
    return CardUse(
        id=name, pci="0000:3b:00.0", driver="nvidia", index=0, parent=parent, values=values, processes=processes
    )


def use(*cards: CardUse, at: float = 100.0, pods: Sequence[str] | None = (A, B), why: str = "") -> Use:
    """Make what is said of use."""
    return Use(session="s", at=at, cards=cards, pods=None if pods is None else tuple(pods), processes=why)


def given_as(shares: int, *ids: str, resource: str = SHARED) -> Given:
    """Say that devices were given when their cards had so many shares."""
    return {(resource, name): Allocation(identity=("/dev/nvidia0",), shares=shares) for name in ids}


def held(device: str, pod: str = A, resource: str = SHARED, **fields: object) -> Allocated:
    """Say that a pod has a device: a GPU, a share such as ``GPU-0::1``, or a MIG device."""
    namespace, _, name = pod.partition("/")
    made = Allocated(resource, device, unit_of(device), Holder(namespace, name, "main"))
    return made._replace(**fields)  # type: ignore[arg-type] # names of its fields
