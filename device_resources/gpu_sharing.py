"""How the GPUs of a node are shared: the text of the file by which device-agent reports it to nfd-worker. Pure.

::

    {"version": 1, "migStrategy": "mixed", "resources": {
        "nvidia.com/gpu": {"replicas": 4, "strategy": "time-slicing", "renamed": false},
        "nvidia.com/mig-1g.5gb": {"replicas": 1, "strategy": "none", "renamed": false}}}

``resources`` has every resource in use, also those that are not shared, by its name before it was renamed: labels begin
with that. A field that is not known is ignored; what older readers would misunderstand needs another ``version``.

The writer replaces the file (``rename``), so that nobody reads half of it, and lets everybody read it (mode 0644): the
worker is not root. NamedTuples, because ``dataclasses`` would cost its child 2.8 MiB.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kube_api.text import quoted

FILE = "/run/driverwright-agent/gpu-sharing.json"

VERSION = 1
LONGEST = 1 << 14
"""Bytes of the file."""
MOST_RESOURCES = 64
MOST_REPLICAS = 1000
MIG_STRATEGIES = ("none", "single", "mixed")
NONE, TIME_SLICING = "none", "time-slicing"
STRATEGIES = (NONE, TIME_SLICING)

_NAME = re.compile(r"nvidia\.com/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,44}[A-Za-z0-9])?", re.ASCII)
"""Short enough for a label's key with ``.sharing-strategy`` at its end."""
_LONGEST_QUOTE = 80


class InvalidSharing(Exception):
    """The text does not say how GPUs are shared; the message names the field and what should be there."""


class SharedResource(NamedTuple):
    """How one resource is shared. ``replicas``: as how many units each device is offered.

    ``strategy``: one of :data:`STRATEGIES`. ``is_renamed``: whether the units have another name than whole devices.
    """

    replicas: int = 1
    strategy: str = NONE
    is_renamed: bool = False


class GpuSharing(NamedTuple):
    """What the file says. ``mig_strategy``: one of :data:`MIG_STRATEGIES`; ``resources``: by name, sorted."""

    mig_strategy: str
    resources: Mapping[str, SharedResource]


def has_labels(name: str) -> bool:
    """Return whether a resource may be in the file: keys of labels begin with its name."""
    return _NAME.fullmatch(name) is not None


def format_sharing(sharing: GpuSharing) -> str:
    """Write the file: one line, the same for the same values."""
    resources = {
        name: {"replicas": one.replicas, "strategy": one.strategy, "renamed": one.is_renamed}
        for name, one in sorted(sharing.resources.items())
    }
    document = {"version": VERSION, "migStrategy": sharing.mig_strategy, "resources": resources}
    return json.dumps(document) + "\n"


def parse_sharing(text: bytes) -> GpuSharing:
    """Read the file.

    Raises:
        InvalidSharing: for anything else than what :func:`format_sharing` writes of valid values.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSharing("it is not JSON") from error
    if not isinstance(document, dict) or type(document.get("version")) is not int or document["version"] != VERSION:
        raise InvalidSharing(f"it must be an object with version {VERSION}")
    resources = document.get("resources")
    if not isinstance(resources, dict) or len(resources) > MOST_RESOURCES:
        raise InvalidSharing(f"resources must be an object with at most {MOST_RESOURCES} entries")
    strategy = _word(document, "migStrategy", MIG_STRATEGIES, "")
    return GpuSharing(strategy, {name: _resource(name, value) for name, value in sorted(resources.items())})


def _resource(name: str, value: Any) -> SharedResource:
    where = f"resources.{quoted(name, _LONGEST_QUOTE)}"
    if not has_labels(name):
        raise InvalidSharing(f"{where} must be named nvidia.com/ and at most 46 of A-Z a-z 0-9 . _ -")
    if not isinstance(value, dict):
        raise InvalidSharing(f"{where} must be an object")
    replicas, is_renamed = value.get("replicas"), value.get("renamed")
    if type(replicas) is not int or not 1 <= replicas <= MOST_REPLICAS:
        raise InvalidSharing(f"{where}.replicas must be a whole number from 1 to {MOST_REPLICAS}")
    if not isinstance(is_renamed, bool):
        raise InvalidSharing(f"{where}.renamed must be true or false")
    return SharedResource(replicas, _word(value, "strategy", STRATEGIES, f"{where}."), is_renamed)


def _word(values: Mapping[str, Any], field: str, words: tuple[str, ...], where: str) -> str:
    value = values.get(field)
    if not isinstance(value, str) or value not in words:
        raise InvalidSharing(f"{where}{field} must be one of {', '.join(words)}")
    return value
