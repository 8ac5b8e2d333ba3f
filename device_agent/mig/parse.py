"""mig-parted's file: the text of one key to values. Pure.

Other keys are not checked: a mistake in one of them is nothing to a node that asks for another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from device_agent.config.yaml_file import key_text, plain_document
from device_agent.errors import ConfigurationError
from device_agent.gpu_state.state import MOST_CARDS
from device_agent.mig.model import DeviceName, parse_device_name
from device_agent.profiles.cards_file import PCI_ID
from device_resources.kinds import Fields, Flag, Items, Json, Number, Pairs, Path, Problem, Text, Word, nearest, shown
from kube_api.text import first_few, quoted

LONGEST_FILE = 1 << 17
"""Bytes. mig-parted's own file of all models has less than a tenth of it."""

_MOST_KEYS, _MOST_ENTRIES, _MOST_FILTERS, _MOST_DEVICES = 512, 64, 64, 56
_MAX_LISTED = 5
_LONGEST_KEY = 100
_CONFIGS = "mig-configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a card is to be: in MIG mode or not, and with which devices."""

    enabled: bool
    devices: Mapping[DeviceName, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a key. ``pci_ids``, ``indexes``: the cards that it is for; None for all."""

    number: int
    pci_ids: frozenset[str] | None
    indexes: frozenset[int] | None
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneOrMore:
    """A PCI id, or a list of them."""

    def check(self, value: object, path: Path) -> list[Problem]:
        if isinstance(value, list):
            return Items(kind=PCI_ID, most=_MOST_FILTERS).check(value, path)
        return PCI_ID.check(value, path)

    def schema(self) -> Json:
        return {"anyOf": [PCI_ID.schema(), Items(kind=PCI_ID, most=_MOST_FILTERS).schema()]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cards:
    """``all``, or a list of indexes."""

    def check(self, value: object, path: Path) -> list[Problem]:
        if value == "all":
            return []
        if isinstance(value, list):
            return Items(kind=Number(low=0, high=MOST_CARDS - 1), most=MOST_CARDS).check(value, path)
        return [
            Problem(path=path, message=f"{shown(value)} is not valid: write all, or a list of indexes such as [0, 1]")
        ]

    def schema(self) -> Json:
        return {"anyOf": [{"enum": ["all"]}, {"type": "array"}]}


_ENTRY = Fields(
    kinds={
        "device-filter": _OneOrMore(),
        "devices": _Cards(),
        "mig-enabled": Flag(),
        "mig-devices": Pairs(
            keys=Text(pattern=r"[0-9A-Za-z.+-]+", words="must be a MIG profile, such as '1g.5gb'", longest=40),
            values=Number(low=0, high=_MOST_DEVICES),
            most=_MOST_DEVICES,
        ),
    },
    required=("devices", "mig-enabled"),
)
_ENTRIES = Items(kind=_ENTRY, most=_MOST_ENTRIES)


def parse_layouts(text: str, file: str, key: str) -> tuple[Entry, ...]:
    """Read what the key asks for; ``file`` is for messages.

    Raises:
        ConfigurationError: there is no such key, or something is wrong with it or the file; the message names each
            wrong field, its value and the remedy.
    """
    if len(text) > LONGEST_FILE:
        raise ConfigurationError(f"{file} is longer than {LONGEST_FILE} characters: remove keys that no node asks for")
    entries = _entries(plain_document(text, file), file, key)
    where = (_CONFIGS, key[:_LONGEST_KEY])
    problems = _ENTRIES.check(entries, where)
    if not problems and isinstance(entries, Sequence):
        problems = [one for n, entry in enumerate(entries) for one in _unlike_fields(entry, (*where, n))]
        if not problems:
            return tuple(_entry(n, entry) for n, entry in enumerate(entries))
    raise ConfigurationError(f"{file}: {first_few(problems, _MAX_LISTED, separator='; ')}")


def _entries(document: object, file: str, key: str) -> object:
    """Find the entries of the key.

    Raises:
        ConfigurationError: the file is not one, or has no such key.
    """
    problems = _FILE.check(document, ())
    if problems or not isinstance(document, Mapping):
        raise ConfigurationError(f"{file}: {first_few(problems, _MAX_LISTED, separator='; ')}")
    # YAML reads a key of digits as a number.
    configs = {key_text(one): value for one, value in document[_CONFIGS].items()}
    if key not in configs:
        there = first_few((quoted(one, _LONGEST_KEY) for one in configs), 20) or "none"
        near = nearest(key, configs)
        raise ConfigurationError(
            f"{file}: {_CONFIGS}: there is no key {quoted(key, _LONGEST_KEY)}{near}; there are {there}"
        )
    return configs[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """The keys, whatever they hold."""

    def check(self, value: object, path: Path) -> list[Problem]:
        if not isinstance(value, Mapping):
            return [Problem(path=path, message=f"{shown(value)} is not a mapping: write KEY: and its entries below it")]
        if len(value) > _MOST_KEYS:
            return [Problem(path=path, message=f"it has {len(value)} keys: write at most {_MOST_KEYS}")]
        return []

    def schema(self) -> Json:
        return {"type": "object", "maxProperties": _MOST_KEYS}


_FILE = Fields(kinds={"version": Word(words=("v1",)), _CONFIGS: _Keys()}, required=("version", _CONFIGS))


def _unlike_fields(entry: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """Find what a table of fields cannot say."""
    devices, place = entry.get("mig-devices"), (*path, "mig-devices")
    if entry["mig-enabled"] and devices is None:
        yield Problem(path=place, message="is missing: write {} for MIG mode without instances")
    if not entry["mig-enabled"] and devices:
        yield Problem(path=place, message="has devices although mig-enabled is false: remove one of both")
    for name in devices or ():
        if parse_device_name(name) is None:
            message = f"{shown(name)} is not a MIG profile: write one such as 1g.5gb, 1g.5gb+me or 1c.3g.20gb"
            yield Problem(path=place, message=message)


def _entry(number: int, plain: Mapping[str, Any]) -> Entry:
    ids, cards = plain.get("device-filter"), plain["devices"]
    listed = [ids] if isinstance(ids, str) else ids
    devices: dict[DeviceName, int] = {}
    for name, count in (plain.get("mig-devices") or {}).items():
        # 3c.3g.20gb is another word for 3g.20gb: both may stand there.
        if (device := parse_device_name(name)) is not None and count:
            devices[device] = devices.get(device, 0) + count
    return Entry(
        number=number,
        pci_ids=None if listed is None else frozenset(one.lower() for one in listed),
        indexes=None if cards == "all" else frozenset(cards),
        layout=Layout(enabled=plain["mig-enabled"], devices=devices),
    )
