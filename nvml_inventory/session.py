"""A live session with NVML: inventories, conditions, use and Xid errors, until it is closed.

In a child process only, and in one thread: every call may hang in the kernel for as long as it likes. A session belongs
to the driver that was loaded when it was opened; while it is open the driver cannot be unloaded, and no GPU reset.
"""

from nvml_inventory.binding import nvml
from nvml_inventory.conditions import read_conditions
from nvml_inventory.events import Watch
from nvml_inventory.gpu_instances import Profiles, read_instances, usable
from nvml_inventory.inventory import read, start, stop
from nvml_inventory.memory_limits import read_memory_limit, set_memory_limit
from nvml_inventory.use import Meter
from nvml_inventory.values import Absent, Card, Conditions, DeviceUse, Inventory, MigLayout, Process, Unreadable, Xid


def open_session(root: str = "/", library: str = "") -> "Session | Absent":
    """Initialise NVML, or say what is missing.

    ``root``: where the host's files are. ``library``: see :func:`nvml_inventory.library.load_library`.

    Raises:
        LibraryUnusable: when the library is there and cannot be loaded.
        DriverUnreadable: when NVML answers with an error that does not mean absence.
    """
    return start(root, library) or Session()


class Session:
    """NVML between its initialisation and its shutdown; see :func:`open_session`."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._meter = Meter()
        self._profiles = Profiles()
        self._names: tuple[tuple[str, str], ...] = ()

    def read(self) -> Inventory:
        """Read driver and GPUs, and watch the Xid errors of each GPU that could be read, from now on.

        Raises:
            DriverUnreadable: when NVML cannot say which driver and how many GPUs there are. Open a new session.
        """
        inventory, handles = read()
        self._watch.follow(handles)
        self._meter.follow(inventory, handles)
        self._profiles.keep(handles)
        cards = name_unreadable(inventory.cards, self._names)
        self._names = tuple(_name(card) for card in cards)
        return inventory._replace(cards=cards)

    def conditions(self, index: int) -> Conditions:
        """Ask a GPU, by NVML's index, for its health; one that is lost has no complaint here."""
        return read_conditions(index)

    def mig_layout(self, uuid: str) -> MigLayout:
        """Ask a GPU of the last inventory for its GPU instances, and what it can make.

        Empty out of MIG mode, and where NVML does not say all of it.
        """
        handle = self._meter.handle_of(uuid)
        if handle is None:
            return MigLayout()
        try:
            known = self._profiles.of(uuid, handle)
            return MigLayout(usable(known), read_instances(handle, known))
        except (nvml.NVMLError, ValueError):
            return MigLayout()

    def use(self) -> tuple[DeviceUse, ...]:
        """Ask how much each GPU and MIG device of the last inventory is used, since the last such question.

        Never fails: of a GPU that is lost nothing is known, and a MIG device that is gone is not there. Before
        a first inventory there is nothing.
        """
        return self._meter.read()

    def processes(self, uuid: str) -> tuple[Process, ...] | None:
        """Ask for the processes of one GPU or MIG device of the last inventory now, without how busy they are.

        Empty where it is not there, where NVML does not say, and for a GPU in MIG mode: they are of its MIG devices.
        """
        return self._meter.processes(uuid)

    def set_memory_limit(self, uuid: str, cgroup_folder: str, hard: int | None) -> str:
        """Limit a cgroup's memory on a GPU, in bytes, by the driver, or lift its limit (None); returns why not.

        ``cgroup_folder``: its full path, where the caller has cgroup v2.
        """
        handle = self._meter.handle_of(uuid)
        return f"there is no GPU {uuid}" if handle is None else set_memory_limit(handle, cgroup_folder, hard)

    def memory_limit(self, uuid: str, cgroup_folder: str) -> int | None:
        """Read back the limit of a cgroup's memory on a GPU; None where there is none, or the driver does not say."""
        handle = self._meter.handle_of(uuid)
        return None if handle is None else read_memory_limit(handle, cgroup_folder)

    def wait(self, seconds: float) -> Xid | None:
        """Wait for the next Xid error at most this long; None without one.

        It never returns None early, also when NVML fails or no GPU is watched: a loop of it does not spin. When
        ``watched`` has changed by it, a GPU was lost: it is time to read.
        """
        return self._watch.wait(seconds)

    @property
    def watched(self) -> frozenset[str]:
        """UUIDs of the GPUs whose Xid errors are reported: none before a first read, and not each GPU can."""
        return self._watch.watched

    def close(self) -> None:
        """Shut NVML down. Nothing can be asked afterwards."""
        self._watch.close()
        self._meter.close()
        stop()


def name_unreadable(
    cards: tuple[Card | Unreadable, ...], known: tuple[tuple[str, str], ...]
) -> tuple[Card | Unreadable, ...]:
    """Fill in UUID and PCI address of GPUs that NVML no longer names, from those known at the same index before.

    NVML keeps the indexes of a session, a lost GPU counts on. Where it has another number of GPUs than before, or
    where the known name is that of another GPU by now, nothing is filled in.
    """
    if len(cards) != len(known):
        return cards
    taken = {card.uuid for card in cards}

    def named(card: Card | Unreadable, uuid: str, pci: str) -> Card | Unreadable:
        if isinstance(card, Card) or card.uuid or uuid in taken or card.pci not in {"", pci}:
            return card
        return card._replace(uuid=uuid, pci=pci)

    return tuple(named(card, *name) for card, name in zip(cards, known, strict=True))


def _name(card: Card | Unreadable) -> tuple[str, str]:
    return (card.uuid, card.pci_bus_id if isinstance(card, Card) else card.pci)
