"""States of the container ``nvml`` for tests: four GPUs that are well, and what may happen to them."""

from collections.abc import Iterable

from device_agent.gpu_state.state import OK, CardState, InstanceState, NodeState, State, XidEvent

BOOT, LOAD = "boot-1", "100"


def uuid(number: int) -> str:
    """Return the UUID of a GPU."""
    return f"GPU-{number}"


def card(number: int, **fields: object) -> CardState:
    """Make a GPU that is well."""
    made = CardState(
        index=number,
        uuid=uuid(number),
        name="NVIDIA A100-SXM4-40GB",
        pci=f"0000:{0x3B + number:02x}:00.0",
        minor=number,
        memory_mib=40960,
        mig_mode=0,
        recovery_action=0,
        numa_node=number // 2,
    )
    return made._replace(**fields)  # type: ignore[arg-type] # names of its fields


def split(number: int, *profiles: str, **fields: object) -> CardState:
    """Make a GPU in MIG mode with instances of these profiles."""
    instances = tuple(
        InstanceState(uuid=f"MIG-{number}-{gi}", profile=profile, gi=gi, ci=0, memory_mib=4864)
        for gi, profile in enumerate(profiles, 1)
    )
    return card(number, **{"mig_mode": 1, "instances": instances, **fields})


def lost(number: int, **fields: object) -> CardState:
    """Make a GPU that has fallen off the bus and cannot even say its UUID."""
    return CardState(index=number, why="GPU is lost", error=15)._replace(**fields)  # type: ignore[arg-type] # as above


def nodes(*minors: int, caps: Iterable[str] = ()) -> tuple[NodeState, ...]:
    """Make the device nodes of GPUs by minor number, and of capabilities."""
    return (
        NodeState("/dev/nvidiactl", 195, 255),
        NodeState("/dev/nvidia-uvm", 510, 0),
        NodeState("/dev/nvidia-uvm-tools", 510, 1),
        NodeState("/dev/nvidia-modeset", 195, 254),
        *(NodeState(f"/dev/nvidia{minor}", 195, minor) for minor in minors),
        *(
            NodeState(f"/dev/nvidia-caps/nvidia-cap{number}", 237, number, capability=path)
            for number, path in enumerate(caps, 12)
        ),
    )


def state(*cards: CardState, at: float = 100.0, **fields: object) -> State:
    """Make a state that was read at a time; four GPUs that are well if none are given."""
    made = State(
        session="s1",
        boot=BOOT,
        load=LOAD,
        status=OK,
        driver="550.54.15",
        cards=cards or tuple(card(number) for number in range(4)),
        nodes=nodes(*range(8)),
        read_at=at,
    )
    return made._replace(**fields)  # type: ignore[arg-type] # as above


def xid(number: int, code: int, of: int = 0, at: float = 101.0, **fields: object) -> XidEvent:
    """Make the so-and-so-many-th event of a session."""
    return XidEvent(number, at, uuid(of), code)._replace(**fields)  # type: ignore[arg-type] # as above
