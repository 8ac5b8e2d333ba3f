"""What a Node asks of the agent, and what it says was answered. Pure; nothing in a Node makes this fail."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL
from kube_api.text import bounded_token

Json = Mapping[str, Any]

MAX_ANSWER = 1 << 16
"""Characters of an annotation that are read; one of ours is shorter."""

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,63}")
"""What is a label's value and a key of a ConfigMap; ``.`` and what begins with ``..`` is none."""


class Wish(Enum):
    """How a Node asks: without the label, with an empty one, with what can be no key, or with a key."""

    ABSENT = "absent"
    EMPTY = "empty"
    INVALID = "invalid"
    KEY = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which profile is asked for. ``key``: as it stands there; bounded and printable where it is INVALID."""

    wish: Wish
    key: str = ""


ABSENT = Asked(wish=Wish.ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """What matters of a Node. ``state`` and ``answer``: label and annotation as they are; None where they are not."""

    uid: str = ""
    asked: Asked = ABSENT
    state: str | None = None
    answer: str | None = None


def is_named(node: object, name: str) -> bool:
    """Return whether this is the Node of a name: a server, or what is before it, may ignore a selector."""
    return _mapping(_mapping(node).get("metadata")).get("name") == name


def parse_node(node: Json) -> SeenNode:
    """Read a Node, or its metadata alone."""
    metadata = _mapping(node.get("metadata"))
    labels, annotations = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
    answer = _text(annotations.get(GPU_PROFILE_ANNOTATION))
    return SeenNode(
        uid=bounded_token(_text(metadata.get("uid")) or ""),
        asked=_asked(_text(labels.get(GPU_PROFILE_LABEL))),
        state=_text(labels.get(GPU_PROFILE_STATE_LABEL)),
        # One that is too long was not written by us: to be answered again it only has to differ.
        answer=answer if answer is None or len(answer) <= MAX_ANSWER else "",
    )


def parse_failure(seen: SeenNode) -> tuple[str, str] | None:
    """Return what was asked, and the message, of a failure that the Node shows; None where it shows none."""
    if seen.state != "failed" or not seen.answer:
        return None
    try:
        answer = _mapping(json.loads(seen.answer))
    except (ValueError, RecursionError):
        return None
    asked, message = _text(answer.get("asked")), _text(answer.get("message"))
    return None if asked is None or message is None else (asked, message)


def _asked(value: str | None) -> Asked:
    if value is None:
        return ABSENT
    if not value:
        return Asked(wish=Wish.EMPTY)
    if _KEY.fullmatch(value) and value != "." and not value.startswith(".."):
        return Asked(wish=Wish.KEY, key=value)
    return Asked(wish=Wish.INVALID, key=bounded_token(value))


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
