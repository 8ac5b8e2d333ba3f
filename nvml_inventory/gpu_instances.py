"""GPU instances of a GPU in MIG mode, where they are, and the profiles and places that it can make them of.

NVML asks for profiles by an index of its own, and knows them afterwards by the id in its answer.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nvml_inventory.binding import nvml
from nvml_inventory.questions import ask
from nvml_inventory.values import GpuInstance, MigProfile

_PREFIX = "MIG "
_MOST_LISTED = 64


class KnownProfile(NamedTuple):
    """A profile, and NVML's id of it."""

    id: int
    profile: MigProfile


def read_profiles(handle: Any) -> tuple[KnownProfile, ...]:
    """Read the profiles of a GPU that is in MIG mode, each once; none where the driver is too old to name them.

    Raises:
        NVMLError: one cannot be read.
    """
    found: dict[str, KnownProfile] = {}
    for index in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = ask(nvml.nvmlDeviceGetGpuInstanceProfileInfoV, handle, index)
        placements = [] if info is None else _placements(handle, info.id)
        if placements and (name := _text(info.name).removeprefix(_PREFIX)):
            starts, sizes = tuple(sorted(one.start for one in placements)), {one.size for one in placements}
            profile = MigProfile(name=name, starts=starts, size=max(sizes), most=info.instanceCount)
            found.setdefault(name, KnownProfile(info.id, profile))
    return tuple(found.values())


def read_instances(handle: Any, profiles: tuple[KnownProfile, ...]) -> tuple[GpuInstance, ...]:
    """Read all GPU instances of a GPU that is in MIG mode, by their places.

    Raises:
        NVMLError: one cannot be read.
    """
    found = []
    for known in profiles:
        for one in listed(nvml.nvmlDeviceGetGpuInstances, handle, known.id, nvml.c_nvmlGpuInstance_t):
            info = nvml.nvmlGpuInstanceGetInfo(one)
            found.append(GpuInstance(info.id, known.profile.name, info.placement.start, info.placement.size))
    return tuple(sorted(found, key=lambda one: one.start))


def listed(question: Any, handle: Any, profile: int, kind: Any) -> list[Any]:
    """Ask for all of a profile: values of a kind, into a list that is long enough for any GPU.

    Raises:
        NVMLError: NVML does not say.
    """
    found, count = (kind * _MOST_LISTED)(), nvml.c_uint(_MOST_LISTED)
    question(handle, profile, found, nvml.byref(count))
    return list(found[: min(count.value, _MOST_LISTED)])


def _placements(handle: Any, profile: int) -> list[Any]:
    """Return where instances of a profile may be; none out of MIG mode."""
    question = nvml.nvmlDeviceGetGpuInstancePossiblePlacements
    return ask(listed, question, handle, profile, nvml.c_nvmlGpuInstancePlacement_t) or []


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


class Profiles:
    """Remembers profiles by UUIDs: a GPU keeps them as long as its driver is loaded."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[KnownProfile, ...]] = {}

    def of(self, uuid: str, handle: Any) -> tuple[KnownProfile, ...]:
        """Return those of a GPU in MIG mode.

        Raises:
            NVMLError: one cannot be read.
        """
        if not self._known.get(uuid):
            self._known[uuid] = read_profiles(handle)
        return self._known[uuid]

    def keep(self, handles: Mapping[str, Any]) -> None:
        """Forget those of GPUs that are not there any more."""
        self._known = {uuid: known for uuid, known in self._known.items() if uuid in handles}
