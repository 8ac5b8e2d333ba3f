"""GPU instances of a GPU in MIG mode, where they are, and the profiles and places that it can make them of.

NVML asks for profiles by an index of its own, and knows them afterwards by the id in its answer.
"""

from collections.abc import Iterable, Mapping
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
    """Read the profiles of a GPU, each id once; none where the driver is too old to name them.

    Out of MIG mode they have no places.

    Raises:
        NVMLError: one cannot be read.
    """
    found: dict[int, KnownProfile] = {}
    for index in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = ask(nvml.nvmlDeviceGetGpuInstanceProfileInfoV, handle, index)
        if info is not None:
            found.setdefault(info.id, KnownProfile(info.id, _profile(info, _placements(handle, info.id))))
    return tuple(found.values())


def _profile(info: Any, placements: list[Any]) -> MigProfile:
    return MigProfile(
        name=_text(info.name).removeprefix(_PREFIX),
        starts=tuple(sorted(one.start for one in placements)),
        size=max((one.size for one in placements), default=0),
        most=info.instanceCount,
    )


def usable(known: Iterable[KnownProfile]) -> tuple[MigProfile, ...]:
    """Return those that instances can be made of by name and place, each name once."""
    named = {one.profile.name: one.profile for one in known if one.profile.name and one.profile.starts}
    return tuple(named.values())


def read_instances(handle: Any, profiles: tuple[KnownProfile, ...]) -> tuple[GpuInstance, ...]:
    """Read all GPU instances of a GPU that is in MIG mode, by their places.

    Raises:
        NVMLError: one cannot be read.
        ValueError: one has a profile without a name.
    """
    found = []
    for known in profiles:
        for one in listed(nvml.nvmlDeviceGetGpuInstances, handle, known.id, nvml.c_nvmlGpuInstance_t):
            info = nvml.nvmlGpuInstanceGetInfo(one)
            if not known.profile.name:
                raise ValueError(f"GPU instance {info.id} has a profile without a name")
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
