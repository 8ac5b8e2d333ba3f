"""Models of GPUs: what NVML says of each, and the MIG profiles that it can be cut into.

Profile ids and memory of the A100 are those that real cards print (``nvidia-smi mig -lgip``); placements, and counts of
multiprocessors and engines, are those of go-nvml's mock. The A30's ids are not confirmed by a real card.
"""

from typing import NamedTuple


class Profile(NamedTuple):
    """A profile of GPU instances.

    ``id``: the hardware's, not NVML's index of the question. ``instances``: how many fit into a card that is empty.
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


class Model(NamedTuple):
    """A model of GPUs. ``memory``: in bytes. Without ``profiles``: none are known for sure."""

    name: str
    memory: int
    compute: tuple[int, int]
    profiles: tuple[Profile, ...] = ()

    def profile(self, name: str) -> Profile:
        """Find a profile by its name."""
        (found,) = (profile for profile in self.profiles if profile.name == name)
        return found


H100 = Model("NVIDIA H100 80GB HBM3", 85520809984, (9, 0))

A100_40 = Model(
    "NVIDIA A100-SXM4-40GB",
    40960 * 2**20,
    (8, 0),
    (
        Profile("1g.5gb", 19, 1, 4864, 7, (0, 1, 2, 3, 4, 5, 6), 1, 14, (1, 0, 0, 0, 0)),
        Profile("1g.10gb", 15, 1, 9856, 4, (0, 2, 4, 6), 2, 14, (1, 1, 0, 0, 0)),
        Profile("2g.10gb", 14, 2, 9856, 3, (0, 2, 4), 2, 28, (2, 1, 0, 0, 0)),
        Profile("3g.20gb", 9, 3, 19968, 2, (0, 4), 4, 42, (3, 2, 0, 0, 0)),
        Profile("4g.20gb", 5, 4, 19968, 1, (0,), 4, 56, (4, 2, 0, 0, 0)),
        Profile("7g.40gb", 0, 7, 40192, 1, (0,), 8, 98, (7, 5, 0, 1, 1)),
    ),
)

A30 = Model(
    "NVIDIA A30",
    24576 * 2**20,
    (8, 0),
    (
        Profile("1g.6gb", 14, 1, 5836, 4, (0, 1, 2, 3), 1, 14, (1, 0, 0, 0, 0)),
        Profile("2g.12gb", 5, 2, 11672, 2, (0, 2), 2, 28, (2, 2, 0, 0, 0)),
        Profile("4g.24gb", 0, 4, 23344, 1, (0,), 4, 56, (4, 4, 0, 1, 1)),
    ),
)
