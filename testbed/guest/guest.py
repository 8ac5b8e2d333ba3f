"""One guest: booted with a kernel, asked through its serial port, rebooted into another kernel on the same disks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.api import Api, is_node_ready
from testbed.command import tail
from testbed.errors import NotReadyError, TestbedError
from testbed.guest import emulation, qmp, serial
from testbed.guest.initramfs import initramfs
from testbed.guest.machine import EDU_DEVICE_ID, Machine, command_line
from testbed.kernels import KernelPackage
from testbed.process import Processes
from testbed.progress import Progress
from testbed.state import GuestState

_POWER_OFF_TIMEOUT = 240.0


class Guest:
    """One QEMU guest as a node; made by `Testbed.add_guest`."""

    def __init__(
        self,
        state: GuestState,
        kernel: KernelPackage,
        *,
        processes: Processes,
        api: Api,
        make_files: Callable[[GuestState], bytes],
        remember: Callable[[], None],
        progress: Progress,
    ) -> None:
        self._state = state
        self._kernel = kernel
        self._processes = processes
        self._api = api
        self._make_files = make_files
        self._remember = remember
        self._progress = progress
        self._lock = threading.Lock()
        self._process = f"guest-{state.name}"

    @property
    def name(self) -> str:
        """The name of the guest and of its node."""
        return self._state.name

    @property
    def kernel(self) -> KernelPackage:
        """The kernel that the guest was last booted with."""
        return self._kernel

    @property
    def kubelet_port(self) -> int:
        """The port of its kubelet, in the guest and on 127.0.0.1 of this machine."""
        return self._state.kubelet_port

    @property
    def root_disk(self) -> Path:
        """The guest's own copy of the root disk."""
        return self._file(".root.img")

    @property
    def images_disk(self) -> Path:
        """The guest's own copy of the disk with container images."""
        return self._file(".images.img")

    @property
    def console_log(self) -> Path:
        """What kernel and process 1 have said, of all boots."""
        return self._processes.log(f"{self._process}.console")

    # -------------------------------------------------------------- power

    def boot(self, kernel: KernelPackage) -> None:
        """Start the guest with a kernel; return at once (see `wait_ready`)."""
        if self.is_running():
            raise TestbedError(f"{self.name} is running already", hint="use reboot(kernel)")
        if kernel.release not in self._state.kernels:
            hint = f"its disk holds {', '.join(self._state.kernels)}; ask the testbed for all kernels before adding it"
            raise TestbedError(f"the disk of {self.name} has no modules of {kernel.release}", hint=hint)
        archive = self._file(".initramfs")
        archive.write_bytes(initramfs(kernel) + self._make_files(self._state))
        archive.chmod(0o600)
        for socket in (self._shell_socket, self._qmp_socket):
            socket.unlink(missing_ok=True)
        machine = Machine(
            kernel=kernel.vmlinuz,
            initramfs=archive,
            disks=(self.root_disk, self.images_disk),
            console_log=self.console_log,
            shell_socket=self._shell_socket,
            qmp_socket=self._qmp_socket,
            kubelet_port=self._state.kubelet_port,
            memory_mib=self._state.memory_mib,
            extra=self._state.extra_qemu,
        )
        self._kernel = kernel
        self._state.kernel_release = kernel.release
        self._remember()
        self._processes.spawn(self._process, emulation.before_others(command_line(machine)))

    def reboot(self, kernel: KernelPackage | None = None) -> None:
        """Power the guest off in an orderly way and boot the same disks, with another kernel where one is given."""
        self.power_off()
        self.boot(kernel or self._kernel)

    def power_off(self) -> None:
        """Shut the guest down in an orderly way; by force when it does not answer."""
        if not self.is_running():
            return
        # The answer may be lost: the guest is going down.
        with contextlib.suppress(NotReadyError):
            self.run("kill -USR2 1", timeout=_POWER_OFF_TIMEOUT)
        if not self._processes.wait_ended(self._process, _POWER_OFF_TIMEOUT):
            self.power_cut()

    def power_cut(self) -> None:
        """Take the power away: nothing is written back, and no shutdown runs."""
        self._processes.kill(self._process)

    def is_running(self) -> bool:
        """Return whether the guest's QEMU runs."""
        return self._process in self._processes.states() and self._processes.is_running(self._process)

    # -------------------------------------------------------------- asking

    def run(self, command: str, *, timeout: float = 240) -> tuple[int, str]:
        """Run a shell command as root in the guest; return its exit status and its output.

        Waits for a guest that is still booting. Safe to be called from several threads.
        """
        with self._lock:
            return serial.run_command(self._shell_socket, command, timeout=timeout, is_running=self.is_running)

    def check(self, command: str, *, timeout: float = 240) -> str:
        """Run a shell command as root in the guest; return its output, or raise when it fails."""
        status, output = self.run(command, timeout=timeout)
        if status != 0:
            raise TestbedError(f"`{command}` in {self.name} ended with {status}: {output[-2000:]}")
        return output

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Run a command on the guest's QEMU; names with a dash are given as {"...-...": value} with **."""
        return qmp.execute(self._qmp_socket, command, **arguments)

    def plug_edu(self, identity: str = EDU_DEVICE_ID) -> None:
        """Put the edu PCI device into the running guest."""
        self.qmp("device_add", driver="edu", id=identity)

    def unplug_edu(self, identity: str = EDU_DEVICE_ID) -> None:
        """Take the edu PCI device out of the running guest."""
        self.qmp("device_del", id=identity)

    def node(self) -> dict[str, Any] | None:
        """Return the guest's Node object, or None before it has registered."""
        node: dict[str, Any] | None = self._api.get(f"/api/v1/nodes/{self.name}")
        return node

    def boot_id(self, *, timeout: float = 240) -> str:
        """Return the kernel's name for the present boot."""
        return self.check("cat /proc/sys/kernel/random/boot_id", timeout=timeout).strip()

    def wait_ready(self, timeout: float = 600) -> None:
        """Wait until the node is Ready in its present boot.

        A rebooted node shows Ready from before for up to 40 s, so the Node must carry the boot's own identity.
        """
        began = time.monotonic()
        with self._progress.step(f"Wait for {self.name} to be Ready with {self._kernel.release}") as step:
            step.detail("booting")
            try:
                boot_id = self.boot_id(timeout=timeout)
            except NotReadyError as error:
                raise NotReadyError(f"{self.name} did not boot: {self._last_words()}") from error
            while not self._is_ready_in(boot_id):
                waited = time.monotonic() - began
                step.detail("booted, waiting for the node to be Ready")
                if not self.is_running() or waited > timeout:
                    raise NotReadyError(f"{self.name} was not Ready after {waited:.0f} s: {self._last_words()}")
                time.sleep(0.2)

    def _is_ready_in(self, boot_id: str) -> bool:
        node = self.node()
        return is_node_ready(node) and node is not None and node["status"]["nodeInfo"]["bootID"] == boot_id

    def pod_logs(self, namespace: str, pod: str, lines: int = 100) -> str:
        """Return the last log lines of a pod's containers, read in the guest: works when kubelet does not."""
        pattern = f"/var/log/pods/{namespace}_{pod}_*/*/*.log"
        return self.run(f'for log in {pattern}; do echo "== $log"; tail -n {lines} $log; done')[1]

    def _last_words(self) -> str:
        said = tail(self.console_log, 1500) + tail(self._processes.log(self._process), 1500)
        try:
            return said + (self.run("tail -n 15 /var/log/kubelet.log", timeout=10)[1] if self.is_running() else "")
        except NotReadyError:
            return said

    def _file(self, ending: str) -> Path:
        return self._processes.folder / f"{self._process}{ending}"

    @property
    def _shell_socket(self) -> Path:
        return self._file(".shell")

    @property
    def _qmp_socket(self) -> Path:
        return self._file(".qmp")
