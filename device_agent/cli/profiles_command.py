"""``device-agent profiles check``: what each profile of a folder would offer, without a cluster and without cards."""

import json
import sys
from typing import Any, NamedTuple

from device_agent.cli.input_file import read_input
from device_agent.cli.table import write_table
from device_agent.errors import ProfileRefused
from device_agent.gpu_state.state import CardState
from device_agent.profiles.cards_file import LONGEST_FILE, parse_cards
from device_agent.profiles.folder import Texts, read_profiles
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.strategy import by_strategy
from device_agent.profiles.summary import Line, lines_of
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
    cards = None if cards_file is None else parse_cards(read_input(cards_file, LONGEST_FILE), cards_file)
    texts = read_profiles(folder)
    checked = [_check(key, texts, cards) for key in texts.keys]
    if output == "json":
        sys.stdout.write(f"{json.dumps({'profiles': [_plain(one) for one in checked]}, indent=2)}\n")
    else:
        _write(checked)
    return 1 if any(one.error for one in checked) else 0


def _check(key: str, texts: Texts, cards: tuple[CardState, ...] | None) -> Checked:
    try:
        profile = parse_profile(texts.text(key), key)
        remarks = tuple(f"{name} means nothing here, and is ignored" for name in profile.ignored)
        if cards is not None:
            remarks += tuple(map(printable, by_strategy(cards, profile.mig_strategy or MigStrategy.NONE).reasons))
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
