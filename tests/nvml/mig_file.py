"""What programs made of a machine's MIG GPUs, as the test library keeps it (:file:`mig_file.c`), and what else may."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.nvml.models import Model

_HOPPER = 9
"""The first compute capability whose MIG mode ends with the driver."""


class Gi(NamedTuple):
    """A GPU instance. ``compute``: slices of its compute instances by their ids; ``uuids``: of their MIG devices."""

    id: int
    profile: str
    start: int
    compute: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()


class MigGpu(NamedTuple):
    """A GPU: its mode, the mode that is pending, and its instances."""

    mode: int = 0
    pending: int = 0
    instances: tuple[Gi, ...] = ()

    @property
    def layout(self) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """Return profile, place and compute slices of each instance, by its place."""
        return tuple(sorted((one.profile, one.start, one.compute) for one in self.instances))


class MigFile:
    """The file. ``path``: of the machine's; ``models``: by the UUIDs of the GPUs that programs may change."""

    def __init__(self, path: Path, models: Mapping[str, Model]) -> None:
        self._path = path
        self._models = models

    def gpu(self, uuid: str) -> MigGpu:
        """Return what is there of a GPU."""
        return self._read()[1].get(uuid, MigGpu())

    def points(self) -> int:
        """Return how many points programs have passed, one before each change and one after it."""
        return self._read()[0][0]

    def changes(self) -> list[str]:
        """Return the changes that programs have made, in words of the test library."""
        path = self._beside(".changes")
        return path.read_text().splitlines() if path.exists() else []

    def set(self, uuid: str, gpu: MigGpu) -> None:
        """Make this of a GPU, as somebody would by hand; UUIDs of devices are left out of it and made up here."""
        with self._changing() as gpus:
            gpus[uuid] = gpu

    def reload(self, *, boots: bool) -> None:
        """Leave what is left after the driver was loaded anew, also by a boot."""
        with self._changing() as gpus:
            for uuid, gpu in gpus.items():
                if gpu.mode != gpu.pending:
                    gpus[uuid] = MigGpu(gpu.pending if boots else gpu.mode, gpu.pending)
                else:
                    keeps = self._models[uuid].compute[0] < _HOPPER
                    gpus[uuid] = MigGpu(gpu.mode, gpu.mode) if keeps else MigGpu()

    @contextmanager
    def _changing(self) -> Iterator[dict[str, MigGpu]]:
        with self._beside(".mig.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (points, writes), gpus = self._read()
            yield gpus
            fresh = self._beside(".mig.new")
            fresh.write_text("".join(f"{line}\n" for line in (f"points {points} {writes + 1}", *self._lines(gpus))))
            os.utime(fresh, (writes + 1, writes + 1))
            fresh.replace(self._beside(".mig"))

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _read(self) -> tuple[tuple[int, int], dict[str, MigGpu]]:
        path = self._beside(".mig")
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        points = next(((int(row[1]), int(row[2])) for row in rows if row[0] == "points"), (0, 0))
        modes = {row[1]: (int(row[2]), int(row[3])) for row in rows if row[0] == "gpu"}
        return points, {uuid: MigGpu(*mode, self._instances(uuid, rows)) for uuid, mode in modes.items()}

    def _instances(self, uuid: str, rows: list[list[str]]) -> tuple[Gi, ...]:
        names = {str(profile.id): profile.name for profile in self._models[uuid].profiles}
        compute = [row for row in rows if row[:2] == ["ci", uuid]]
        found = []
        for _, _, gi, profile, start in (row for row in rows if row[:2] == ["gi", uuid]):
            its = sorted((int(row[3]), int(row[4]), row[6]) for row in compute if row[2] == gi)
            sizes, uuids = tuple(one[1] for one in its), tuple(one[2] for one in its)
            found.append(Gi(int(gi), names[profile], int(start), sizes, uuids))
        return tuple(found)

    def _lines(self, gpus: Mapping[str, MigGpu]) -> Iterator[str]:
        for uuid, gpu in gpus.items():
            yield f"gpu {uuid} {gpu.mode} {gpu.pending}"
            for one in gpu.instances:
                yield f"gi {uuid} {one.id} {self._models[uuid].profile(one.profile).id} {one.start}"
                start = 0
                for ci, slices in enumerate(one.compute):
                    named = one.uuids[ci] if ci < len(one.uuids) else f"MIG-{uuid[4:]}-{one.id}-{ci}"
                    yield f"ci {uuid} {one.id} {ci} {slices} {start} {named}"
                    start += slices
