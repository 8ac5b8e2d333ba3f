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


def parse_node(node: Json) -> SeenNode:
    """Read a Node, or its metadata alone."""
    metadata = mapping(node.get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    answer = text_of(annotations.get(GPU_PROFILE_ANNOTATION))
    return SeenNode(
        uid=bounded_token(text_of(metadata.get("uid")) or ""),
        asked=_asked(text_of(labels.get(GPU_PROFILE_LABEL))),
        state=text_of(labels.get(GPU_PROFILE_STATE_LABEL)),
        # One that is too long was not written by us: to be answered again it only has to differ.
        answer=answer if answer is None or len(answer) <= MAX_ANSWER else "",
    )


def parse_failure(seen: SeenNode) -> tuple[str, str] | None:
    """Return what was asked, and the message, of a failure that the Node shows; None where it shows none."""
    if seen.state != "failed" or not seen.answer:
        return None
    try:
        answer = mapping(json.loads(seen.answer))
    except (ValueError, RecursionError):
        return None
    asked, message = text_of(answer.get("asked")), text_of(answer.get("message"))
    return None if asked is None or message is None else (asked, message)


def _asked(value: str | None) -> Asked:
    if value is None:
        return ABSENT
    if not value:
        return Asked(wish=Wish.EMPTY)
    if _KEY.fullmatch(value) and value != "." and not value.startswith(".."):
        return Asked(wish=Wish.KEY, key=value)
    return Asked(wish=Wish.INVALID, key=bounded_token(value))


def mapping(value: object) -> Json:
    """Return a JSON object as it is, and an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str | None:
    """Return a text as it is, and None in place of anything else."""
    return value if isinstance(value, str) else None
