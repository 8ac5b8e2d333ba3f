"""Profiles of MIG and the models of cards that have them: plain values, and the words of their names. Pure."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?:([1-9])c\.)?(([1-9])g\.[1-9][0-9]{0,3}gb([+-][a-z][a-z0-9.]{0,15})?)")
_PARTS = (1, 2, 3, 4)
"""Compute slices of an instance that has not all of its GPU instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile of GPU instances, such as ``3g.20gb``.

    ``compute``: its compute slices. ``size``: its memory slices, which are those from one of ``starts`` on.
    ``most``: how many a card without other instances has room for.
    """

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]
    most: int

    @property
    def has_media(self) -> bool:
        """Return whether it takes the media extensions, of which a card has one set."""
        return "+me" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of cards. ``pci_ids``: device and vendor, as ``0x20b010de``. ``products``: NVML's names of it."""

    name: str
    profiles: tuple[Profile, ...]
    pci_ids: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()

    def profile(self, name: str) -> Profile | None:
        """Find a profile by its name; None where the model has no such one."""
        return next((one for one in self.profiles if one.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceName:
    """The name of a MIG device in parts: ``1c.3g.20gb`` has the profile ``3g.20gb``, and 1 of its 3 compute slices."""

    profile: str
    compute: int
    of: int

    @property
    def is_whole(self) -> bool:
        """Return whether the device has all of its GPU instance."""
        return self.compute == self.of

    def __str__(self) -> str:
        return self.profile if self.is_whole else f"{self.compute}c.{self.profile}"


def parse_device_name(name: str) -> DeviceName | None:
    """Read the name of a MIG device; None where it is not one, or has compute slices that no instance can have."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    of = int(match[3])
    compute = int(match[1] or of)
    is_possible = compute == of or (compute < of and compute in _PARTS and not (compute == 3 and of == 4))
    return DeviceName(profile=match[2], compute=compute, of=of) if is_possible else None
