"""A machine for the test library: its GPUs, and what happens to them while programs look at it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from tests.nvml.gpu import FakeGpu, FakeProcess, lines
from tests.nvml.mig_file import MigFile
from tests.nvml.models import H100, Model

_LINKED, _NOT_LINKED, _ITSELF = "0", "5", "6"
"""Statuses of a pair: ``nvmlP2PStatus_t``."""


class FakeMachine:
    """A machine of GPUs of one model in a file; each call changes the file at once, for all processes.

    ``gpu`` is the place of a GPU among all that the machine ever had, and its index as long as none is removed.
    ``changes_mig``: programs may change MIG mode and instances; ``mig`` is what they made. Then ``add_mig`` is not for
    it.
    """

    def __init__(
        self,
        path: Path,
        model: Model = H100,
        count: int = 1,
        *,
        driver: str = "550.54.15",
        changes_mig: bool = False,
    ) -> None:
        self.path = path
        self.facts = {"driver": driver, "cuda": "12040"}
        self.gpus = [FakeGpu(index, model, changes_mig=changes_mig) for index in range(count)]
        self.mig = MigFile(path, {gpu.facts["uuid"]: model for gpu in self.gpus if changes_mig})
        self._faults: list[str] = []
        self._linked: set[tuple[int, int]] = set()
        self._events = 0
        self._changed = 0
        self._is_held = False
        self.write()

    # ------------------------------------------------------------ what can be known

    def uuid(self, gpu: int) -> str:
        """Return the UUID of a GPU."""
        return self.gpus[gpu].facts["uuid"]

    def pci(self, gpu: int) -> str:
        """Return the PCI address of a GPU, as sysfs spells it."""
        return self.gpus[gpu].facts["pci"][4:].lower()

    def environment(self) -> dict[str, str]:
        """Return what a program's environment needs, so that the library describes this machine."""
        return {"FAKE_NVML_MACHINE": str(self.path)}

    # ------------------------------------------------------------ what can happen

    def xid(self, gpu: int, number: int, gi: int | None = None, ci: int | None = None) -> None:
        """Let the driver report an Xid error of a GPU, or of MIG instances of it."""
        self._events += 1
        where = "" if gi is None else f" {gi} {0xFFFFFFFF if ci is None else ci}"
        self.gpus[gpu].xids.append(f"{self._events} {number}{where}")
        self.write()

    def lose(self, gpu: int, error: int = 15) -> None:
        """Let a GPU fall off the bus: it is counted as before, and each question about it fails."""
        self.set(gpu, "lost", error)

    def recover(self, gpu: int) -> None:
        """Let a lost GPU answer again."""
        self.unset(gpu, "lost")

    def remove(self, gpu: int) -> None:
        """Take a GPU away: it is no longer counted, and the indexes of those behind it shift."""
        self.gpus[gpu].is_there = False
        self.write()

    def bring_back(self, gpu: int) -> None:
        """Bring a removed GPU back to its place."""
        self.gpus[gpu].is_there = True
        self.write()

    def set(self, gpu: int, key: str, value: object) -> None:
        """Set a value of a GPU, as it stands in the file."""
        self.gpus[gpu].facts[key] = str(value)
        self.write()

    def unset(self, gpu: int, key: str) -> None:
        """Let a GPU not support a question."""
        self.gpus[gpu].facts.pop(key, None)
        self.write()

    def set_use(self, gpu: int, mig: str = "", /, **values: float | None) -> None:
        """Set how much a GPU, or the MIG device with this UUID, is used; None: it does not know that.

        Names and units are those of :data:`device_agent.gpu_state.use.VALUES`; ``memory_free`` is what is left, and
        without ``memory_used`` it is what the processes have. :data:`tests.nvml.gpu.USE` is a set of them.
        """
        self.gpus[gpu].set_use(mig, values)
        self.write()

    def add_process(
        self,
        gpu: int,
        pid: int,
        memory: int | None,
        busy: int | None = None,
        *,
        mig: str = "",
        graphics: bool = False,
    ) -> None:
        """Let a process use a GPU, or the MIG device with this UUID; of one that is there, change how much.

        ``memory``: bytes; None: NVML does not know. ``busy``: percent, in each sample; None: it is in no sample.
        ``graphics``: in that list instead of compute; call it twice for both.
        """
        self.gpus[gpu].add_process(FakeProcess(pid, memory, busy, mig, graphics))
        self.write()

    def remove_process(self, gpu: int, pid: int) -> None:
        """Let a process end, as far as this GPU is concerned."""
        self.gpus[gpu].remove_process(pid)
        self.write()

    def add_sample(self, gpu: int, pid: int, percent: int, at: int) -> None:
        """Add a sample of how busy a process kept a GPU until a time in microseconds; a later look has not seen it."""
        self.gpus[gpu].samples.append(f"{pid} {percent} {at}")
        self.write()

    def limits(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return soft and hard limit by the GPU's UUID and the cgroup's folder, as programs have set them."""
        path = self.path.with_name(f"{self.path.name}.limits")
        rows = [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []
        return {(uuid, folder): (int(soft), int(hard)) for uuid, soft, hard, folder in rows}

    def set_limit(self, gpu: int, folder: str, hard: int) -> None:
        """Set a hard limit of a cgroup, in bytes, as another program would."""
        with self.path.with_name(f"{self.path.name}.limits").open("a") as file:
            file.write(f"{self.uuid(gpu)} 0 {hard} {folder}\n")

    def set_driver(self, version: str) -> None:
        """Let the driver be of another version, as after a reload."""
        self.facts["driver"] = version
        self.write()

    def hold(self, node: str) -> None:
        """Let NVML have a device node open while it is initialised; without the node, no driver is loaded."""
        self.facts["control"] = node
        self.write()

    def connect(self, gpu: int, other: int, links: int = 4) -> None:
        """Join two GPUs by NVLinks."""
        for one, end in ((gpu, other), (other, gpu)):
            self.gpus[one].links += [f"0 {self.gpus[end].facts['pci']}"] * links
        self._linked.add((min(gpu, other), max(gpu, other)))
        self.write()

    def connect_by_switch(self, links: int = 18) -> None:
        """Join all GPUs through NVSwitch."""
        for gpu in self.gpus:
            gpu.links += ["2 00000000:F1:00.0"] * links
        self._linked.update(combinations(range(len(self.gpus)), 2))
        self.write()

    def add_mig(self, gpu: int, profile: str, gi: int, ci: int = 0) -> str:
        """Give a GPU a MIG device, in MIG mode; returns its UUID. Whether it fits is not checked."""
        one, its = self.gpus[gpu], self.gpus[gpu].model.profile(profile)
        uuid = f"MIG-{gpu:08x}-0000-4000-8000-{gi:08x}{ci:04x}"
        attributes = (its.multiprocessors, *its.engines, its.slices, its.slices, its.memory_mib)
        one.facts["migmode"] = "1"
        one.migs.append(
            {
                "name": f"{one.model.name} MIG {profile}",
                "uuid": uuid,
                "gi": str(gi),
                "ci": str(ci),
                "attributes": " ".join(map(str, attributes)),
            }
        )
        self.write()
        return uuid

    def switch_wants_reset(self, gpu: int) -> None:
        """Let a switch of a GPU's MIG mode be pending until the machine boots."""
        self.set(gpu, "resetrequired", 1)

    def reload_driver(self) -> None:
        """Load the driver anew: instances are gone, and Hopper loses MIG mode; what is pending stays so."""
        self.mig.reload(boots=False)

    def boot(self) -> None:
        """Boot: as with a new driver, but pending modes are what GPUs have now."""
        self.mig.reload(boots=True)

    def write_proc(self, folder: Path) -> None:
        """Have instances and minors in a folder that stands for ``/proc/driver/nvidia``, whenever a program asks."""
        self.facts["proc"] = str(folder)
        self.write()

    def die_at(self, point: int) -> None:
        """Let the program that comes to this point be killed: one is before each change of MIG, and one after it."""
        self.facts["dieat"] = str(point)
        self.write()

    def remove_mig(self, gpu: int, uuid: str) -> None:
        """Take one MIG device of a GPU away."""
        self.gpus[gpu].migs = [mig for mig in self.gpus[gpu].migs if mig["uuid"] != uuid]
        self.write()

    def remove_migs(self, gpu: int) -> None:
        """Take all MIG devices of a GPU away; it stays in MIG mode."""
        self.gpus[gpu].migs.clear()
        self.write()

    def fault(self, place: str, error: int, gpu: int | None = None) -> None:
        """Let questions fail, about a GPU or the machine; the places are in :file:`fake_nvml.h`."""
        self._add_fault(f"fault {place} {error}", gpu)

    def hang(self, place: str, gpu: int | None = None) -> None:
        """Let questions have no answer, until :meth:`heal`."""
        self._add_fault(f"hang {place}", gpu)

    def crash(self, place: str, gpu: int | None = None) -> None:
        """Let questions end the program."""
        self._add_fault(f"crash {place}", gpu)

    def kill(self, place: str, gpu: int | None = None) -> None:
        """Let questions end the program by SIGKILL."""
        self._add_fault(f"kill {place}", gpu)

    def run(self, place: str, gpu: int | None = None) -> None:
        """Let questions start a program that does not end, and wait for it."""
        self._add_fault(f"run {place}", gpu)

    def heal(self) -> None:
        """Let everything that failed, hung or crashed work again. Lost GPUs stay lost."""
        self._faults.clear()
        for gpu in self.gpus:
            gpu.faults.clear()
        self.write()

    # ------------------------------------------------------------ the file

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Make all changes within seen together."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.write()

    def write(self) -> None:
        """Replace the file. Its time differs from each earlier one's: that is how the library sees a change."""
        if self._is_held:
            return
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_bytes(self.text().encode(errors="surrogateescape"))
        self._changed = max(self._changed + 1, time.time_ns())
        os.utime(fresh, ns=(self._changed, self._changed))
        fresh.replace(self.path)

    def text(self) -> str:
        """Describe the machine; to be put into a file elsewhere, such as on a guest."""
        here = [at for at, gpu in enumerate(self.gpus) if gpu.is_there]
        blocks = [lines(self.facts), *self._faults]
        for at in here:
            p2p = [f"p2p {' '.join(self._status(at, other) for other in here)}"] if self._linked else []
            blocks += ["gpu", *p2p, *self.gpus[at].blocks()]
        return "\n".join(blocks) + "\n"

    def _status(self, one: int, other: int) -> str:
        if one == other:
            return _ITSELF
        return _LINKED if (min(one, other), max(one, other)) in self._linked else _NOT_LINKED

    def _add_fault(self, line: str, gpu: int | None) -> None:
        (self._faults if gpu is None else self.gpus[gpu].faults).append(line)
        self.write()
