"""Changes MIG mode and instances of a GPU. Each method is one step, which is done or raises; a step may take seconds.

In a session of its own, without events that are watched: a switch of the mode resets the GPU, or unbinds it from the
driver, which wants to have it for itself. UUIDs stay; handles, minors and device nodes need not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nvml_inventory.advice import explain
from nvml_inventory.binding import nvml
from nvml_inventory.errors import MigInUse, MigUnchanged, MigWantsReset
from nvml_inventory.gpu_instances import KnownProfile, listed, read_instances, read_profiles
from nvml_inventory.values import GpuInstance


class MigCard:
    """A GPU by its UUID, while NVML is initialised.

    Every method raises :class:`nvml_inventory.errors.MigUnchanged`, or one of its kinds, when it is not done.
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def modes(self) -> tuple[int, int]:
        """Return the mode that it has, and the one that is pending."""
        with _attempt(f"MIG mode of {self._uuid} cannot be read"):
            current, pending = nvml.nvmlDeviceGetMigMode(self._handle())
            return current, pending

    def instances(self) -> tuple[GpuInstance, ...]:
        """Return all its GPU instances, none out of MIG mode."""
        if self.modes()[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return ()
        with _attempt(f"GPU instances of {self._uuid} cannot be read"):
            handle = self._handle()
            if not (known := read_profiles(handle)):
                raise MigUnchanged(f"the driver does not name the MIG profiles of {self._uuid}: it is too old")
            return read_instances(handle, known)

    def set_mode(self, mode: int) -> None:
        """Switch the mode."""
        attempt = f"MIG mode of {self._uuid} cannot be {'enabled' if mode else 'disabled'}"
        with _attempt(attempt):
            status = nvml.nvmlDeviceSetMigMode(self._handle(), mode)
        if status == nvml.NVML_ERROR_IN_USE:
            raise MigInUse(f"{attempt}: other programs use the GPU; the switch is pending")
        if status == nvml.NVML_ERROR_RESET_REQUIRED or (not status and self.modes() != (mode, mode)):
            raise MigWantsReset(f"{attempt} without a reset of the GPU: reset it, or reboot; the switch is pending")
        if status:
            raise MigUnchanged(explain(attempt, nvml.NVMLError(status)))

    def destroy(self, gi: int) -> None:
        """Destroy a GPU instance, first its compute instances."""
        with _attempt(f"GPU instance {gi} of {self._uuid} cannot be destroyed"):
            instance = nvml.nvmlDeviceGetGpuInstanceById(self._handle(), gi)
            _destroy(instance)

    def create(self, profile: str, start: int, compute: Sequence[int]) -> None:
        """Create a GPU instance at a memory slice, and compute instances of these compute slices in it, or nothing."""
        with _attempt(f"{profile} at slice {start} of {self._uuid} cannot be created"):
            handle = self._handle()
            known = _named([one for one in read_profiles(handle) if one.profile.starts], profile, self._uuid)
            placement = nvml.c_nvmlGpuInstancePlacement_t(start, known.profile.size)
            instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, known.id, nvml.byref(placement))
        with _attempt(f"{list(compute)} compute slices of {profile} at slice {start} of {self._uuid} cannot be used"):
            _fill(instance, compute)

    def _handle(self) -> Any:
        """Find the handle anew: a switch of the mode may have made it another one."""
        return nvml.nvmlDeviceGetHandleByUUID(self._uuid)


def _named(profiles: Sequence[KnownProfile], name: str, uuid: str) -> KnownProfile:
    for one in profiles:
        if one.profile.name == name:
            return one
    names = ", ".join(one.profile.name for one in profiles) or "none"
    raise MigUnchanged(f"{uuid} has no MIG profile {name}: it has {names}")


def _fill(instance: Any, compute: Sequence[int]) -> None:
    try:
        for profile in _compute_ids(instance, compute):
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile)
    except (nvml.NVMLError, MigUnchanged):
        with suppress(nvml.NVMLError):  # what is left of it is read anew, and said
            _destroy(instance)
        raise


def _compute_ids(instance: Any, compute: Sequence[int]) -> list[int]:
    """Return NVML's ids of profiles with so many slices; the first one of several."""
    known = {slices: profile for profile, slices in reversed(list(_compute_profiles(instance)))}
    for slices in compute:
        if slices not in known:
            raise MigUnchanged(f"it can have no compute instance of {slices} slices")
    return [known[slices] for slices in compute]


def _destroy(instance: Any) -> None:
    for profile, _ in _compute_profiles(instance):
        question = nvml.nvmlGpuInstanceGetComputeInstances
        for one in listed(question, instance, profile, nvml.c_nvmlComputeInstance_t):
            nvml.nvmlComputeInstanceDestroy(one)
    nvml.nvmlGpuInstanceDestroy(instance)


def _compute_profiles(instance: Any) -> Iterator[tuple[int, int]]:
    """Return NVML's id and the slices of each profile of compute instances that a GPU instance can have."""
    question: Callable[..., Any] = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    for index in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            info = question(instance, index, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1)
            yield info.id, info.sliceCount


@contextmanager
def _attempt(what: str) -> Iterator[None]:
    try:
        yield
    except nvml.NVMLError as error:
        kind = MigInUse if error.value == nvml.NVML_ERROR_IN_USE else MigUnchanged
        raise kind(explain(what, error)) from error
    except ValueError as error:
        raise MigUnchanged(f"{what}: NVML's answer makes no sense: {error}") from error
