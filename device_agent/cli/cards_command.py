"""``device-agent cards``: writes the cards of this node, as ``device-agent profiles check --cards`` reads them."""

import asyncio
import json
import sys
from collections.abc import Sequence

import yaml

from device_agent.config.options import Settings
from device_agent.gpu_state.state import CardState
from device_agent.profiles.cards_file import plain_cards
from device_agent.sources.nvidia.client import USUAL, Heard, NvmlClient
from device_agent.sources.nvidia.roster import EMPTY, after_state


def write_cards(settings: Settings, output: str) -> int:
    """Print the cards that the container ``nvml`` names now; 1 if it names none, or not each of them."""
    heard = asyncio.run(_hear(settings))
    if heard.state is None or heard.trouble:
        sys.stderr.write(f"device-agent: the cards are not known: {heard.trouble}\n")
        return 1
    roster, unnamed = after_state(EMPTY, heard.state)
    _write(roster.cards, output)
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


def _write(cards: Sequence[CardState], output: str) -> None:
    plain = plain_cards(cards)
    if output == "json":
        sys.stdout.write(f"{json.dumps(plain, indent=2)}\n")
    else:
        yaml.safe_dump(plain, sys.stdout, sort_keys=False)
