"""``device-agent mig plan``: what a key of mig-parted's file does to cards, without a cluster and without a card."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from device_agent.cli.streams import read_input, write_json, write_table
from device_agent.mig.cards import named_cards, parse_mig_cards
from device_agent.mig.parse import LONGEST_FILE, parse_layouts
from device_agent.mig.plan import CardPlan, plan_cards
from device_agent.mig.solve import Existing, Placed
from device_agent.profiles.cards_file import LONGEST_FILE as LONGEST_CARDS
from kube_api.text import MAX_MESSAGE, printable

_HEADER = ("CARD", "MODEL", "MIG", "SLICES", "PROFILE", "ACTION")
_LONGEST_PRODUCT = 64
_LONGEST_MESSAGE = 2 * MAX_MESSAGE


def print_plan(file: str, key: str, names: Sequence[str], cards_file: str | None, output: str) -> int:
    """Print what happens to each card; 1 if the layout of one cannot be had.

    Raises:
        ConfigurationError: the file, its key or the cards are not valid or cannot be read.
    """
    entries = parse_layouts(read_input(file, LONGEST_FILE), file, key)
    if cards_file is None:
        cards = named_cards(names)
    else:
        cards = parse_mig_cards(read_input(cards_file, LONGEST_CARDS), cards_file)
    plans = plan_cards(entries, cards)
    if output == "json":
        write_json({"key": key, "cards": [_plain(one) for one in plans], "devices": _devices(plans)})
    else:
        write_table([_HEADER, *(row for one in plans for row in _rows(one))])
        if devices := _devices(plans):
            sys.stdout.write("\n")
            write_table([("PROFILE", "DEVICES"), *((name, str(count)) for name, count in devices.items())])
    refused = [one for one in plans if one.refused]
    sys.stderr.writelines(f"{printable(one.refused, _LONGEST_MESSAGE)}\n" for one in refused)
    return 1 if refused else 0


def _devices(plans: Sequence[CardPlan]) -> dict[str, int]:
    """Count the MIG devices that all cards have afterwards; refused ones as they are."""
    here = [one.instance for plan in plans for one in plan.stays]
    here += [one.instance for plan in plans for one in plan.created]
    counts = Counter(str(device) for instance in here for device in instance.devices)
    return dict(sorted(counts.items()))


def _rows(plan: CardPlan) -> Iterator[tuple[str, ...]]:
    card = plan.card
    enabled = plan.layout.enabled if plan.layout is not None and not plan.refused else card.enabled
    start = str(card.index), printable(card.product, _LONGEST_PRODUCT), "enabled" if enabled else "disabled"
    if plan.refused:
        yield (*start, "-", "-", "refused")
        return
    if plan.changes_mode:
        yield (*start, "-", "-", f"{'enable' if enabled else 'disable'} MIG mode")
    done = [*_actions("destroy", plan.destroyed), *_actions("keep", plan.stays), *_actions("create", plan.created)]
    for action, one in done:
        yield (*start, _slices(plan, one), str(one.instance), action)
    if not done and not plan.changes_mode:
        yield (*start, "-", "-", "no entry is for it" if plan.layout is None else "nothing to do")


def _actions(word: str, several: Sequence[Existing | Placed]) -> list[tuple[str, Existing | Placed]]:
    ordered = sorted(several, key=lambda one: (one.start is None, one.start or 0, str(one.instance)))
    return [(word, one) for one in ordered]


def _slices(plan: CardPlan, one: Existing | Placed) -> str:
    """Write the memory slices of an instance, ``4-7``; ``?`` where they are not known."""
    profile = plan.card.model.profile(one.instance.profile) if plan.card.model else None
    if one.start is None or profile is None:
        return "?"
    return str(one.start) if profile.size == 1 else f"{one.start}-{one.start + profile.size - 1}"


def _plain(plan: CardPlan) -> dict[str, Any]:
    return {
        "index": plan.card.index,
        "model": plan.card.product,
        "migMode": "enabled" if plan.card.enabled else "disabled",
        "migModeAsked": None if plan.layout is None else "enabled" if plan.layout.enabled else "disabled",
        "keep": [_plain_instance(plan, one) for _, one in _actions("", plan.stays)],
        "destroy": [_plain_instance(plan, one) for _, one in _actions("", plan.destroyed)],
        "create": [_plain_instance(plan, one) for _, one in _actions("", plan.created)],
        "refused": plan.refused,
    }


def _plain_instance(plan: CardPlan, one: Existing | Placed) -> dict[str, Any]:
    profile = plan.card.model.profile(one.instance.profile) if plan.card.model else None
    return {
        "profile": one.instance.profile,
        "start": one.start,
        "size": profile.size if profile else None,
        "devices": [str(device) for device in one.instance.devices],
    }
