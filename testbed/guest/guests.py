"""All guests of one ground: their disks made, their kernels and ports remembered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed import kernels
from testbed.control_plane import ControlPlane
from testbed.errors import TestbedError
from testbed.guest import disk, emulation, guest_files, images, machine
from testbed.guest.guest import Guest
from testbed.kernels import KernelPackage
from testbed.kube_binaries import KubeBinaries
from testbed.packages import ensure_packages
from testbed.ports import free_ports
from testbed.process import Processes
from testbed.progress import Progress
from testbed.registry import Registry
from testbed.state import GroundState, GuestState

PACKAGES = tuple({*disk.PACKAGES, *images.PACKAGES, *emulation.PACKAGES})


class Guests:
    """The QEMU guests of a testbed."""

    def __init__(
        self,
        state: GroundState,
        *,
        processes: Processes,
        binaries: KubeBinaries,
        control_plane: ControlPlane,
        registry: Registry,
        pause_image: str,
        progress: Progress,
    ) -> None:
        self._state = state
        self._processes = processes
        self._binaries = binaries
        self._control_plane = control_plane
        self._registry = registry
        self._pause_image = pause_image
        self._progress = progress
        self._guests: dict[str, Guest] = {}
        self._kernels: dict[str, KernelPackage] = {}
        self._root_disks: dict[tuple[str, ...], Path] = {}
        self._stock: dict[str, KernelPackage] = {}
        self._chosen: dict[int, list[KernelPackage]] = {}

    def kernels(self, count: int) -> list[KernelPackage]:
        """Return kernels that refuse each other's modules, oldest first; the guests' disk will hold their modules.

        They are of the tree's Debian release, and so is the system of a guest that boots one.
        """
        if count not in self._chosen:
            ensure_packages(PACKAGES)
            self._chosen[count] = kernels.choose_kernels(count, self._progress)
            self._know(self._chosen[count])
        return list(self._chosen[count])

    def stock_kernel(self, codename: str) -> KernelPackage:
        """Return the kernel of an ordinary installation of a Debian release; guests that boot it have its system."""
        if codename not in self._stock:
            ensure_packages(PACKAGES)
            self._stock[codename] = kernels.newest_kernel(kernels.GENERIC, self._progress, codename)
            self._know([self._stock[codename]])
        return self._stock[codename]

    def kernel(self, release: str) -> KernelPackage:
        """Return one kernel by its release."""
        if release not in self._kernels:
            self._kernels[release] = kernels.find_kernel(release, self._progress)
        return self._kernels[release]

    def preload(self, references: Sequence[str]) -> None:
        """Put images of the testbed's registry onto the disk of the guests that are added from now on."""
        ensure_packages(PACKAGES)
        self._state.preloaded = sorted({*self._state.preloaded, *references})
        self._remember()
        self._images_disk()

    def add(
        self,
        name: str,
        kernel: KernelPackage,
        extra_qemu: Sequence[str] = (),
        *,
        edu: bool = True,
        memory_mib: int = 512,
        boot: bool = True,
    ) -> Guest:
        """Make and boot a guest with the system that the kernel is of; return it at once.

        Who adds several boots them when all are made: one that boots leaves the copies of disks little of a processor.
        """
        if name in self._state.guests:
            raise TestbedError(f"there is a guest {name} already", hint="choose another name, or reboot that one")
        ensure_packages(PACKAGES)
        self._know([kernel])
        known = [one for one in map(self.kernel, self._state.kernels) if one.codename == kernel.codename]
        root_disk = self._root_disk(known)
        images_disk = self._images_disk()
        edu_device = ["-device", f"edu,id={machine.EDU_DEVICE_ID}"] if edu else []
        state = GuestState(
            name=name,
            kernel_release=kernel.release,
            kubelet_port=free_ports(1)[0],
            extra_qemu=[*edu_device, *extra_qemu],
            memory_mib=memory_mib,
            kernels=[one.release for one in known],
        )
        guest = self._guest(state, kernel)
        with self._progress.step(f"{'Boot' if boot else 'Make'} {name} with {kernel.release}"):
            disk.copy_image(root_disk, guest.root_disk)
            disk.copy_image(images_disk, guest.images_disk)
            self._state.guests[name] = state
            self._guests[name] = guest
            self._remember()
            if boot:
                guest.boot(kernel)
        return guest

    def get(self, name: str) -> Guest:
        """Return a guest that was added before, by this process or another."""
        if name not in self._state.guests:
            there = ", ".join(sorted(self._state.guests)) or "none"
            raise TestbedError(f"there is no guest {name}", hint=f"guests: {there}")
        if name not in self._guests:
            state = self._state.guests[name]
            self._guests[name] = self._guest(state, self.kernel(state.kernel_release))
        return self._guests[name]

    def names(self) -> list[str]:
        """Return the names of all guests."""
        return sorted(self._state.guests)

    def remove(self, name: str) -> None:
        """Take a guest's power away and forget it, with its disks and its Node object."""
        guest = self.get(name)
        guest.power_cut()
        self._control_plane.api.delete(f"/api/v1/nodes/{name}")
        for image in (guest.root_disk, guest.images_disk):
            image.unlink(missing_ok=True)
        del self._state.guests[name], self._guests[name]
        self._remember()

    def _guest(self, state: GuestState, kernel: KernelPackage) -> Guest:
        return Guest(
            state,
            kernel,
            processes=self._processes,
            api=self._control_plane.api,
            make_files=self._files,
            remember=self._remember,
            progress=self._progress,
        )

    def _files(self, state: GuestState) -> bytes:
        return guest_files.guest_files(
            name=state.name,
            minor=self._binaries.minor,
            kubelet_port=state.kubelet_port,
            api_port=self._control_plane.api_port,
            registry_port=self._registry.port,
            pause_image=self._pause_image,
            authority=self._control_plane.authority,
        )

    def _root_disk(self, known: Sequence[KernelPackage]) -> Path:
        releases = tuple(kernel.release for kernel in known)
        if releases not in self._root_disks:
            self._root_disks[releases] = disk.ensure_root_disk(self._binaries, known, self._progress)
        return self._root_disks[releases]

    def _images_disk(self) -> Path:
        wanted = [self._pause_image, *self._state.preloaded]
        return images.ensure_images_disk(self._processes, self._registry, wanted, self._progress)

    def _know(self, more: Sequence[KernelPackage]) -> None:
        self._kernels.update((kernel.release, kernel) for kernel in more)
        releases = {*self._state.kernels, *(kernel.release for kernel in more)}
        self._state.kernels = sorted(releases, key=kernels.release_key)
        self._remember()

    def _remember(self) -> None:
        self._state.save(self._processes.folder)
