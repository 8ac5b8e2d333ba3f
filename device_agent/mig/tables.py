"""The models of cards whose placements are known. Pure.

Names of profiles and how many a card has room for: NVIDIA's MIG User Guide, *Supported MIG Profiles*. Placements, which
are ``{STARTS}:SIZE`` in memory slices: ``nvidia-smi mig -lgipp`` as printed by cards in public reports, for the A100
with 40 GB and the A30 also go-nvml's tables. go-nvml's tables of H100 differ from what cards print, and are not used.
PCI ids: pci.ids, and the filters of mig-parted's own configuration. Other models: ``migProfiles`` of a file of cards.
"""

from collections.abc import Mapping

from device_agent.mig.model import Model, Profile


def _profile(name: str, size: int, *starts: int, most: int | None = None) -> Profile:
    return Profile(
        name=name, compute=int(name[0]), size=size, starts=starts, most=len(starts) if most is None else most
    )


def _seven_slices(one: int, two: int, half: int, whole: int) -> tuple[Profile, ...]:
    """Make the profiles of a card of seven compute and eight memory slices, by the gigabytes in their names."""
    return (
        _profile(f"1g.{one}gb", 1, 0, 1, 2, 3, 4, 5, 6),
        _profile(f"1g.{one}gb+me", 1, 0, 1, 2, 3, 4, 5, 6, most=1),
        _profile(f"1g.{two}gb", 2, 0, 2, 4, 6),
        _profile(f"2g.{two}gb", 2, 0, 2, 4),
        _profile(f"3g.{half}gb", 4, 0, 4),
        _profile(f"4g.{half}gb", 4, 0),
        _profile(f"7g.{whole}gb", 8, 0),
    )


_A100_40 = Model(
    name="A100-40",
    profiles=_seven_slices(5, 10, 20, 40),
    pci_ids=frozenset({"0x20b010de", "0x20b110de", "0x20f110de"}),
    products=frozenset({"A100-SXM4-40GB", "A100-PCIE-40GB"}),
)
_A100_80 = Model(
    name="A100-80",
    profiles=_seven_slices(10, 20, 40, 80),
    pci_ids=frozenset({"0x20b210de", "0x20b510de"}),
    products=frozenset({"A100-SXM4-80GB", "A100 80GB PCIe"}),
)
_A30 = Model(
    name="A30",
    profiles=(
        _profile("1g.6gb", 1, 0, 1, 2, 3),
        _profile("1g.6gb+me", 1, 0, 1, 2, 3, most=1),
        _profile("2g.12gb", 2, 0, 2),
        _profile("2g.12gb+me", 2, 0, 2, most=1),
        _profile("4g.24gb", 4, 0),
    ),
    pci_ids=frozenset({"0x20b710de"}),
    products=frozenset({"A30"}),
)
_H100_80 = Model(
    name="H100-80",
    profiles=_seven_slices(10, 20, 40, 80),
    pci_ids=frozenset({"0x233010de", "0x233110de"}),
    products=frozenset({"H100 80GB HBM3", "H100 PCIe"}),
)
_H100_94 = Model(
    name="H100-94",
    profiles=_seven_slices(12, 24, 47, 94),
    pci_ids=frozenset({"0x232110de"}),
    products=frozenset({"H100 NVL"}),
)

MODELS: Mapping[str, Model] = {one.name: one for one in (_A100_40, _A100_80, _A30, _H100_80, _H100_94)}


def model_of(product: str) -> Model | None:
    """Find the model by NVML's name of a card, with or without ``NVIDIA`` before it."""
    name = product.removeprefix("NVIDIA ")
    return next((one for one in MODELS.values() if name in one.products), None)
