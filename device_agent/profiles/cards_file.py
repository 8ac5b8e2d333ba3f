"""The file that ``device-agent cards`` writes: the cards of a node, for those who check profiles elsewhere. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from device_agent.config.yaml_file import plain_document
from device_agent.errors import ConfigurationError
from device_agent.gpu_state.checks import MOST, is_word
from device_agent.gpu_state.state import (
    MOST_CARDS,
    MOST_INSTANCES,
    MOST_PROFILES,
    MOST_SLICES,
    CardState,
    InstanceState,
    MigProfileState,
)
from device_resources.kinds import Fields, Items, Number, Problem, Text, Word
from kube_api.text import MAX_MESSAGE, first_few

VERSION = "v1"
LONGEST_FILE = 1 << 18
"""Bytes."""

_MAX_LISTED = 5
_UUID = Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._:/+-]*", words="must be a UUID, such as GPU-...", longest=128)
_LINE = Text(pattern=r"[^\x00-\x1f\x7f]*", words="must be one line", longest=MAX_MESSAGE)
_NUMBER = Number(low=0, high=MOST)
PCI_ID = Text(
    pattern=r"0x[0-9A-Fa-f]{8}", words="must be device and vendor of a PCI device, such as '0x20B010DE'", longest=10
)
_SLICE = Number(low=0, high=MOST_SLICES - 1)
_INSTANCE = Fields(
    kinds={"uuid": _UUID, "profile": _LINE, "gi": _NUMBER, "ci": _NUMBER, "memoryMiB": _NUMBER, "start": _SLICE},
    required=("uuid", "profile"),
)
_PROFILE = Fields(
    kinds={
        "name": _LINE,
        "starts": Items(kind=_SLICE, most=MOST_SLICES),
        "size": Number(low=1, high=MOST_SLICES),
        "most": Number(low=1, high=MOST_SLICES),
    },
    required=("name", "starts", "size"),
)
_CARD = Fields(
    kinds={
        "index": Number(low=0, high=MOST_CARDS - 1),
        "uuid": _UUID,
        "product": _LINE,
        "memoryMiB": _NUMBER,
        "minor": Number(low=0, high=2**20 - 1),
        "pci": _LINE,
        "migMode": Word(words=("enabled", "disabled")),
        "instances": Items(kind=_INSTANCE, most=MOST_INSTANCES, least=0),
        "pciId": PCI_ID,
        "migProfiles": Items(kind=_PROFILE, most=MOST_PROFILES),
    },
    required=("index", "uuid", "product"),
)
_FILE = Fields(
    kinds={"version": Word(words=(VERSION,)), "cards": Items(kind=_CARD, most=MOST_CARDS, least=0)},
    required=("version", "cards"),
)
_MODES = {0: "disabled", 1: "enabled"}


def plain_cards(cards: Sequence[CardState]) -> dict[str, Any]:
    """Make what JSON and YAML can write; what is not known of a card is left out."""
    return {"version": VERSION, "cards": [_plain(card) for card in cards]}


def parse_cards(text: str, path: str) -> tuple[CardState, ...]:
    """Read such a file; ``path`` is for messages.

    Raises:
        ConfigurationError: names each wrong field, its value and the remedy.
    """
    return tuple(card for card, _ in parse_with_plain(text, path))


def parse_with_plain(text: str, path: str) -> tuple[tuple[CardState, Mapping[str, Any]], ...]:
    """Read such a file; beside each card all that was written of it.

    That is ``pciId``, ``migProfiles`` and ``start`` of instances besides, which planning of MIG reads, and which are
    written by hand as well.

    Raises:
        ConfigurationError: names each wrong field, its value and the remedy.
    """
    document = plain_document(text, path)
    problems = _FILE.check(document, ())
    plain = () if problems or not isinstance(document, Mapping) else document["cards"]
    cards = tuple((_card(one), one) for one in plain)
    problems = problems or _repeated([card for card, _ in cards])
    if problems:
        raise ConfigurationError(f"{path}: {first_few(problems, _MAX_LISTED, separator='; ')}")
    return cards


def _plain(card: CardState) -> dict[str, Any]:
    starts = {one.gi: one.start for one in card.gpu_instances}
    found = {
        "index": card.index,
        "uuid": card.uuid,
        "product": card.name,
        "memoryMiB": card.memory_mib,
        "minor": card.minor,
        "pci": card.pci if is_word(card.pci) else None,
        "migMode": None if card.mig_mode is None else _MODES[card.mig_mode],
        "instances": [_plain_instance(one, starts.get(one.gi)) for one in card.instances] or None,
        "pciId": card.pci_id or None,
        "migProfiles": [_plain_profile(one) for one in card.mig_profiles] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _plain_instance(one: InstanceState, start: int | None) -> dict[str, Any]:
    plain = {"uuid": one.uuid, "profile": one.profile, "gi": one.gi, "ci": one.ci, "memoryMiB": one.memory_mib}
    return plain if start is None else {**plain, "start": start}


def _plain_profile(one: MigProfileState) -> dict[str, Any]:
    return {"name": one.name, "starts": list(one.starts), "size": one.size, "most": one.most}


def _card(plain: Mapping[str, Any]) -> CardState:
    instances = tuple(map(_instance, plain.get("instances") or ()))
    modes: dict[str | None, int | None] = {word: number for number, word in _MODES.items()}
    return CardState(
        index=plain["index"],
        uuid=plain["uuid"],
        name=plain["product"],
        pci=plain.get("pci") or "",
        minor=plain.get("minor"),
        memory_mib=plain.get("memoryMiB"),
        mig_mode=modes.get(plain.get("migMode"), 1 if instances else None),
        instances=instances,
    )


def _instance(plain: Mapping[str, Any]) -> InstanceState:
    return InstanceState(
        uuid=plain["uuid"],
        profile=plain["profile"],
        gi=plain.get("gi") or 0,
        ci=plain.get("ci") or 0,
        memory_mib=plain.get("memoryMiB") or 0,
    )


def _repeated(cards: Sequence[CardState]) -> list[Problem]:
    uuids = [uuid for card in cards for uuid in (card.uuid, *(one.uuid for one in card.instances))]
    if len({card.index for card in cards}) < len(cards) or len(set(uuids)) < len(uuids):
        return [Problem(path=("cards",), message="two have one index or one UUID: remove one of them")]
    return []
