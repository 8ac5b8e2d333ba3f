"""``device-agent profiles check``: what each profile of a folder would offer, without a cluster and without cards.

And ``device-agent cards``: writes the cards of this node, as ``profiles check --cards`` reads them.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from device_agent.cli.streams import read_input, write_json, write_table
from device_agent.config.options import Settings
from device_agent.errors import ProfileRefused
from device_agent.gpu_state.state import CardState
from device_agent.profiles.cards_file import LONGEST_FILE, parse_cards, plain_cards
from device_agent.profiles.folder import Texts, read_profiles
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.strategy import Sorted
from device_agent.profiles.summary import Line, lines_of
from device_agent.sources.nvidia.client import USUAL, Heard, NvmlClient
from device_agent.sources.nvidia.roster import EMPTY, after_state
from device_resources.nvidia import MigStrategy
from kube_api.text import printable


class Checked(NamedTuple):
    """What is found of one key. ``error``: why it is refused. ``remarks``: what else its author should know."""

    key: str
    lines: tuple[Line, ...] = ()
    error: str = ""
    remarks: tuple[str, ...] = ()


def check_profiles(folder: str, cards_file: str | None, output: str) -> int:
    """Print what each profile would offer; 1 if one is refused.

    Raises:
        ConfigurationError: the folder or the file of cards cannot be read.
    """
    cards = None if cards_file is None else Sorted(parse_cards(read_input(cards_file, LONGEST_FILE), cards_file))
    texts = read_profiles(folder)
    checked = [_check(key, texts, cards) for key in texts.keys]
    if output == "json":
        write_json({"profiles": [_plain(one) for one in checked]})
    else:
        _write(checked)
    return 1 if any(one.error for one in checked) else 0


def _check(key: str, texts: Texts, cards: Sorted | None) -> Checked:
    try:
        profile = parse_profile(texts.text(key), key)
        remarks = tuple(f"{name} means nothing here, and is ignored" for name in profile.ignored)
        if cards is not None:
            remarks += tuple(map(printable, cards.by(profile.mig_strategy or MigStrategy.NONE).reasons))
        return Checked(key, tuple(lines_of(profile, cards)), remarks=remarks)
    except ProfileRefused as error:
        whole = str(error)
        return Checked(key, error=whole if whole.startswith(f"profile {key}") else f"profile {key}: {whole}")


def _write(checked: list[Checked]) -> None:
    rows = [("PROFILE", "RESOURCE", "UNITS", "SHARES", "TOTAL")]
    for one in checked:
        rows += [(one.key, *_cells(line)) for line in one.lines]
        if one.error or not one.lines:
            rows.append((one.key, "-", "-", "-", "refused" if one.error else "0"))
    write_table(rows)
    for one in checked:
        sys.stderr.writelines(f"profile {one.key}: {remark}\n" for remark in one.remarks)
        sys.stderr.write(f"{one.error}\n" if one.error else "")


def _cells(line: Line) -> tuple[str, str, str, str]:
    if line.units is None:
        return line.resource, "*", str(line.shares), f"{line.shares} of each"
    return line.resource, str(line.units), str(line.shares), str(line.total)


def _plain(one: Checked) -> dict[str, Any]:
    resources = [{**line._asdict(), "total": line.total} for line in one.lines]
    return {"name": one.key, "resources": resources, "error": one.error, "remarks": list(one.remarks)}


def write_cards(settings: Settings, output: str) -> int:
    """Print the cards that the container ``nvml`` names now; 1 if it names none, or not each of them."""
    heard = asyncio.run(_hear(settings))
    if heard.state is None or heard.trouble:
        sys.stderr.write(f"device-agent: the cards are not known: {heard.trouble}\n")
        return 1
    roster, unnamed = after_state(EMPTY, heard.state)
    _write_cards(roster.cards, output)
    if unnamed:
        sys.stderr.write(f"device-agent: {unnamed} cards cannot be read, and are left out\n")
    return 1 if unnamed else 0


async def _hear(settings: Settings) -> Heard:
    client = NvmlClient(settings.nvml_socket, USUAL, lambda: None)
    try:
        await client.first_state()
        return client.heard
    finally:
        await client.close()


def _write_cards(cards: Sequence[CardState], output: str) -> None:
    plain = plain_cards(cards)
    if output == "json":
        write_json(plain)
    else:
        yaml.safe_dump(plain, sys.stdout, sort_keys=False)
