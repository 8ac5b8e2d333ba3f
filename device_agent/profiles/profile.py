"""A profile as a value: what one key of the folder says."""

from dataclasses import dataclass

from device_resources.nvidia import AllocationPolicy, MigStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Gives a resource's whole ``name`` to what has a ``pattern``: a product, or a MIG profile. ``*`` is any text."""

    pattern: str
    name: str

    def matches(self, text: str) -> bool:
        """Return whether the whole text is as the pattern says; capitals count. It takes linear time."""
        first, *others = self.pattern.split("*")
        if not others:
            return text == first
        *inner, last = others
        place = len(first)
        for part in inner:
            found = text.find(part, place)
            if found < 0:
                return False
            place = found + len(part)
        return text.startswith(first) and text.endswith(last) and len(text) - len(last) >= place


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One entry of ``sharing.timeSlicing.resources``.

    ``name``: the whole name of the resource whose devices are shared.
    ``becomes``: under which name their shares are offered: ``rename``, else by ``renameByDefault``, else ``name``.
    ``devices``: indexes, ``gpu:mig`` indexes and UUIDs; or how many; None: all.
    """

    name: str
    becomes: str
    replicas: int
    devices: tuple[str, ...] | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile says; None where config.yaml decides.

    ``gpus``, ``migs``: the first one that matches gives the name. ``shared``: by position in the file.
    ``fails_greater_than_one``: a container that asks for two shares of a card is refused.
    ``ignored``: fields of NVIDIA's plugin that mean nothing here, to be logged once.
    """

    mig_strategy: MigStrategy | None = None
    policy: AllocationPolicy | None = None
    gpus: tuple[Naming, ...] = ()
    migs: tuple[Naming, ...] = ()
    shared: tuple[Shared, ...] = ()
    fails_greater_than_one: bool = False
    ignored: tuple[str, ...] = ()
