"""Models of GPUs: what NVML says of each, and the MIG profiles that it can be cut into.

Profile ids and memory of A100 and H100 are those that real cards print (``nvidia-smi mig -lgip``); placements, and
counts of multiprocessors and engines, are those of go-nvml's mock, of the H100 what cards print. The A30's ids, and the
H100's memory to the MiB, are not confirmed by a real card.
"""

from typing import NamedTuple


class Profile(NamedTuple):
    """A profile of GPU instances.

    ``id``: the hardware's, not NVML's ``index`` of the question. ``instances``: how many fit into a card that is empty.
    An instance takes ``size`` slices of memory from one of ``starts`` on. Engines: copy, decoder, encoder, JPEG, OFA.
    """

    name: str
    id: int
    slices: int
    memory_mib: int
    instances: int
    starts: tuple[int, ...]
    size: int
    multiprocessors: int
    engines: tuple[int, int, int, int, int]
    index: int  # type: ignore[assignment] # nobody searches in a profile as in a tuple

    def line(self) -> str:
        """Describe it for the test library."""
        numbers = (self.index, self.id, self.slices, self.instances, self.size, self.multiprocessors, *self.engines)
        return " ".join(map(str, ("profile", *numbers, self.memory_mib, self.name, *self.starts)))


class Model(NamedTuple):
    """A model of GPUs. ``memory``: in bytes. ``pci_id``: device and vendor."""

    name: str
    memory: int
    compute: tuple[int, int]
    profiles: tuple[Profile, ...]
    pci_id: str

    def profile(self, name: str) -> Profile:
        """Find a profile by its name."""
        (found,) = (profile for profile in self.profiles if profile.name == name)
        return found


_SEVEN, _EVEN = (0, 1, 2, 3, 4, 5, 6), (0, 2, 4, 6)

H100 = Model(
    "NVIDIA H100 80GB HBM3",
    85520809984,
    (9, 0),
    (
        Profile("1g.10gb", 19, 1, 9856, 7, _SEVEN, 1, 16, (1, 1, 0, 1, 0), 0),
        Profile("1g.10gb+me", 20, 1, 9856, 1, _SEVEN, 1, 16, (1, 1, 0, 1, 1), 7),
        Profile("1g.20gb", 15, 1, 20096, 4, _EVEN, 2, 26, (1, 1, 0, 1, 0), 9),
        Profile("2g.20gb", 14, 2, 20096, 3, (0, 2, 4), 2, 32, (2, 2, 0, 2, 0), 1),
        Profile("3g.40gb", 9, 3, 40448, 2, (0, 4), 4, 60, (3, 3, 0, 3, 0), 2),
        Profile("4g.40gb", 5, 4, 40448, 1, (0,), 4, 64, (4, 4, 0, 4, 0), 3),
        Profile("7g.80gb", 0, 7, 80896, 1, (0,), 8, 132, (7, 7, 0, 7, 1), 4),
    ),
    "0x233010de",
)

A100_40 = Model(
    "NVIDIA A100-SXM4-40GB",
    40960 * 2**20,
    (8, 0),
    (
        Profile("1g.5gb", 19, 1, 4864, 7, _SEVEN, 1, 14, (1, 0, 0, 0, 0), 0),
        Profile("1g.5gb+me", 20, 1, 4864, 1, _SEVEN, 1, 14, (1, 1, 0, 1, 1), 7),
        Profile("1g.10gb", 15, 1, 9856, 4, _EVEN, 2, 14, (1, 1, 0, 0, 0), 9),
        Profile("2g.10gb", 14, 2, 9856, 3, (0, 2, 4), 2, 28, (2, 1, 0, 0, 0), 1),
        Profile("3g.20gb", 9, 3, 19968, 2, (0, 4), 4, 42, (3, 2, 0, 0, 0), 2),
        Profile("4g.20gb", 5, 4, 19968, 1, (0,), 4, 56, (4, 2, 0, 0, 0), 3),
        Profile("7g.40gb", 0, 7, 40192, 1, (0,), 8, 98, (7, 5, 0, 1, 1), 4),
    ),
    "0x20b010de",
)

A30 = Model(
    "NVIDIA A30",
    24576 * 2**20,
    (8, 0),
    (
        Profile("1g.6gb", 14, 1, 5836, 4, (0, 1, 2, 3), 1, 14, (1, 0, 0, 0, 0), 0),
        Profile("1g.6gb+me", 21, 1, 5836, 1, (0, 1, 2, 3), 1, 14, (1, 1, 0, 1, 1), 7),
        Profile("2g.12gb", 5, 2, 11672, 2, (0, 2), 2, 28, (2, 2, 0, 0, 0), 1),
        Profile("2g.12gb+me", 6, 2, 11672, 1, (0, 2), 2, 28, (2, 2, 0, 1, 1), 8),
        Profile("4g.24gb", 0, 4, 23344, 1, (0,), 4, 56, (4, 4, 0, 1, 1), 3),
    ),
    "0x20b710de",
)
