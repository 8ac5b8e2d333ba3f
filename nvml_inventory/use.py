"""How much each GPU and MIG device of the last inventory is used, and by which processes."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.gpm import Gpm
from nvml_inventory.measures import read_memory, read_values
from nvml_inventory.processes import Busy, read_processes, with_busy
from nvml_inventory.questions import answer
from nvml_inventory.values import Card, DeviceUse, Inventory, Process


class Meter:
    """Reads how much GPUs are used; it keeps what a look needs of the one before."""

    def __init__(self) -> None:
        self._cards: Mapping[str, tuple[int, Card, Any]] = {}
        self._busy = Busy()
        self._gpm = Gpm()

    def follow(self, inventory: Inventory, handles: Mapping[str, Any]) -> None:
        """Look at the GPUs of this inventory, whose handles are by UUID, from now on."""
        self._cards = {
            card.uuid: (index, card, handles[card.uuid])
            for index, card in enumerate(inventory.cards)
            if isinstance(card, Card) and card.uuid in handles
        }

    def read(self) -> tuple[DeviceUse, ...]:
        """Read all of them. Of a GPU that is lost meanwhile nothing is known."""
        found = tuple(use for index, card, handle in self._cards.values() for use in self._uses(index, card, handle))
        uuids = {use.uuid for use in found}
        self._busy.keep(uuids)
        self._gpm.keep(uuids)
        return found

    def handle_of(self, uuid: str) -> Any:
        """Return NVML's handle of a GPU or MIG device; None when it is not there."""
        if uuid in self._cards:
            return self._cards[uuid][2]
        for _, card, handle in self._cards.values():
            if mig := _mig_handles(card, handle).get(uuid):
                return mig
        return None

    def processes(self, uuid: str) -> tuple[Process, ...] | None:
        """Read the processes of one GPU or MIG device now, None where that fails.

        Those of a GPU in MIG mode are of its MIG devices.
        """
        handle = self.handle_of(uuid)
        if handle is None or (uuid in self._cards and _is_in_mig_mode(handle)):
            return ()
        return read_processes(handle)

    def close(self) -> None:
        """Free what it keeps."""
        self._gpm.keep(())

    def _uses(self, index: int, card: Card, handle: Any) -> Iterator[DeviceUse]:
        migs = _mig_handles(card, handle)
        has_migs = _is_in_mig_mode(handle)
        yield DeviceUse(
            uuid=card.uuid,
            pci=card.pci_bus_id,
            index=index,
            name=card.name,
            values={**read_values(handle), **self._gpm.read(card.uuid, handle)},
            processes=() if has_migs else self._processes(card.uuid, handle),
        )
        for mig in card.migs:
            if own := migs.get(mig.uuid):
                yield DeviceUse(
                    uuid=mig.uuid,
                    pci=card.pci_bus_id,
                    index=index,
                    name=card.name,
                    parent=card.uuid,
                    profile=mig.profile,
                    gi=mig.gi,
                    values={**read_memory(own), **self._gpm.read(mig.uuid, handle, mig.gi)},
                    processes=self._processes(mig.uuid, own),
                )

    def _processes(self, uuid: str, handle: Any) -> tuple[Process, ...] | None:
        found = read_processes(handle)
        return None if found is None else with_busy(found, self._busy.read(uuid, handle))


def _is_in_mig_mode(handle: Any) -> bool:
    """Return whether this is a GPU that may have MIG devices, instead of processes of its own."""
    mode = answer(nvml.nvmlDeviceGetMigMode, handle)
    return bool(mode and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE)


def _mig_handles(card: Card, handle: Any) -> dict[str, Any]:
    """Find the handles of the MIG devices that an inventory knew, as far as they are there: by UUID."""
    if not card.migs:
        return {}
    found = {}
    for index in range(answer(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        with suppress(nvml.NVMLError, ValueError):
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found[nvml.nvmlDeviceGetUUID(mig)] = mig
    return found
