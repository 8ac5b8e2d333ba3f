"""One GPU of a machine for the test library: what the file says of it, and who uses it."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.nvml.models import Model

_KEPT_XIDS = 64
"""As many as the library reads of each GPU."""

_HOPPER = 9
"""The first compute capability with GPM."""

_ROWS = {"rows_correctable": 0, "rows_uncorrectable": 1, "rows_failed": 3}
"""Places in the line ``rows``."""

USE: dict[str, float] = {
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 2619,
    "temperature_c": 41,
    "memory_temperature_c": 52,
    "power_w": 350.5,
    "energy_mj": 123456789,
    "busy_percent": 97,
    "memory_busy_percent": 31,
    "encoder_percent": 2,
    "decoder_percent": 3,
    "memory_reserved": 600 * 2**20,
    "pcie_replays": 4,
    "ecc_single_volatile": 5,
    "ecc_double_volatile": 0,
    "ecc_single_aggregate": 7,
    "ecc_double_aggregate": 1,
    "rows_correctable": 2,
    "rows_uncorrectable": 1,
    "rows_failed": 0,
    "throttle": 0x4,
    "engine_active": 0.97,
    "sm_active": 0.5,
    "tensor_active": 0.25,
    "dram_active": 0.125,
}
"""For ``set_use``: all that a card that works may know, but for its memory, which is what the processes have."""


class FakeProcess(NamedTuple):
    """A process in a list of a GPU or a MIG device; see :meth:`tests.nvml.machine.FakeMachine.add_process`."""

    pid: int
    memory: int | None
    busy: int | None
    mig: str
    is_graphics: bool

    def lines(self) -> list[str]:
        """Describe it."""
        list_name = " graphics" if self.is_graphics else ""
        memory = "none" if self.memory is None else self.memory
        busy = [] if self.busy is None else [f"busy {self.pid} {self.busy}"]
        return [f"process {self.pid} {memory}{list_name}", *busy]


class FakeGpu:
    """What the file says of one GPU."""

    def __init__(self, index: int, model: Model, *, changes_mig: bool = False) -> None:
        self.model = model
        self.changes_mig = changes_mig
        self.facts = {
            "name": model.name,
            "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
            "pci": f"00000000:{0x10 + index:02X}:00.0",
            "minor": str(index),
            "memory": str(model.memory),
            "compute": "{} {}".format(*model.compute),
            "ecc": "1",
            "persistence": "1",
            "migmode": "0",
            "virtualization": "0",
            "recovery": "0",
            "rows": "0 0 0 0",
            "events": "8",
            "gpm": str(int(model.compute[0] >= _HOPPER)),
            "nosamples": "6",
            "pciid": model.pci_id.removeprefix("0x"),
        }
        self.migs: list[dict[str, str]] = []
        self.links: list[str] = []
        self.faults: list[str] = []
        self.xids: list[str] = []
        self.processes: list[FakeProcess] = []
        self.samples: list[str] = []
        self.is_there = True

    def set_use(self, mig: str, values: Mapping[str, float | None]) -> None:
        """Set how much it, or one of its MIG devices, is used; None: it does not know that."""
        facts = self._facts_of(mig)
        for name, value in values.items():
            if name in _ROWS:
                self._set_rows(_ROWS[name], value)
                continue
            key = {"power_w": "power_mw", "memory_total": "memory"}.get(name, name)
            if value is None:
                facts.pop(key, None)
            else:
                facts[key] = str(round(value * 1000) if name == "power_w" else value)

    def add_process(self, process: FakeProcess) -> None:
        """Let a process use it, instead of the same one in the same list."""
        place = (process.pid, process.mig, process.is_graphics)
        others = [one for one in self.processes if (one.pid, one.mig, one.is_graphics) != place]
        self._facts_of(process.mig)
        self.processes = [*others, process]

    def remove_process(self, pid: int) -> None:
        """Let a process end."""
        self.processes = [one for one in self.processes if one.pid != pid]

    def blocks(self) -> list[str]:
        """Describe it, and its MIG devices, but for the line that begins it."""
        blocks = [lines(self.facts), *self.faults]
        blocks += [profile.line() for profile in self.model.profiles if self.changes_mig]
        blocks += [f"link {link}" for link in self.links]
        blocks += [f"xid {xid}" for xid in self.xids[-_KEPT_XIDS:]]
        blocks += [*self._users(""), *(f"busy {sample}" for sample in self.samples)]
        for mig in self.migs:
            blocks += ["mig", lines(mig), *self._users(mig["uuid"])]
        return blocks

    def _users(self, mig: str) -> list[str]:
        return [line for process in self.processes if process.mig == mig for line in process.lines()]

    def _facts_of(self, mig: str) -> dict[str, str]:
        if not mig:
            return self.facts
        if self.changes_mig and all(one["uuid"] != mig for one in self.migs):
            self.migs.append({"uuid": mig})
        (facts,) = (one for one in self.migs if one["uuid"] == mig)
        return facts

    def _set_rows(self, place: int, value: float | None) -> None:
        rows = self.facts.get("rows", "0 0 0 0").split()
        rows[place] = str(value)
        self.facts["rows"] = " ".join(rows)
        if value is None:
            del self.facts["rows"]


def lines(facts: Mapping[str, str]) -> str:
    """Write each key with its value."""
    return "\n".join(f"{key} {value}" for key, value in facts.items())
