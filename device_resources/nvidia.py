"""The devices of NVIDIA's driver, as an admin asks for them by ``nvidia:``: checked and made a value. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from device_resources.kinds import Json, Path, Problem
from device_resources.nvidia_fields import NVIDIA_FIELDS
from device_resources.resource import NVIDIA_DOMAIN
from device_resources.resource_parser import InvalidResource

FULL_CARD = f"{NVIDIA_DOMAIN}gpu"
HOLD_SECONDS = 600


class MigStrategy(StrEnum):
    """How MIG devices are offered: not at all, as full cards, or each profile by a resource of its own."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class AllocationPolicy(StrEnum):
    """Which units come first where units are shared: those with most shares left, or with fewest."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSettings:
    """What ``nvidia:`` says; without a field, its default.

    ``libraries``: the root of the driver's user space on the node; None: no libraries are mounted into containers.
    ``hold_seconds``: how long a card stays unhealthy after the last error that asks for no reset.
    ``changes_mig``: cards get the MIG layout that the Node's label asks for. ``drains_for_mig``: and who uses what goes
    for that is evicted, by driver-builder.
    """

    mig_strategy: MigStrategy = MigStrategy.NONE
    libraries: str | None = None
    policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED
    hold_seconds: int = HOLD_SECONDS
    changes_mig: bool = False
    drains_for_mig: bool = False


def parse_nvidia(value: object, where: Path = ()) -> NvidiaSettings:
    """Check what ``nvidia:`` says (JSON) and make it a value; ``where`` is its path in messages.

    Raises:
        InvalidResource: naming each wrong field, its value and the remedy.
    """
    if value is None:
        raise InvalidResource((Problem(path=where, message="is empty: write {} for the defaults, or remove it"),))
    problems = NVIDIA_FIELDS.check(value, where)
    if problems or not isinstance(value, Mapping):
        raise InvalidResource(tuple(problems))
    libraries, health, mig = (value.get(name) or {} for name in ("libraries", "health", "mig"))
    return NvidiaSettings(
        mig_strategy=MigStrategy(value.get("migStrategy") or MigStrategy.NONE),
        libraries=libraries.get("path"),
        policy=AllocationPolicy(value.get("sharedDevicesAllocationPolicy") or AllocationPolicy.DISTRIBUTED),
        hold_seconds=health.get("holdSeconds") or HOLD_SECONDS,
        changes_mig=mig.get("enabled") is True,
        drains_for_mig=mig.get("drain") is True,
    )


def nvidia_schema() -> Json:
    """Write what ``nvidia:`` may hold as an OpenAPI schema, as a CRD has it."""
    return NVIDIA_FIELDS.schema()
