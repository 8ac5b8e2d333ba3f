"""Reads what the device agent of a node asks for (:mod:`kube_api.drain_contract`). Pure.

The request is written by a less trusted program than this one: it is read strictly, and bounded.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from driver_builder.api.spec_reader import shown
from driver_builder.api.spec_rules import DURATION, EXTENDED_RESOURCE, OBJECT_NAME, Rule, seconds
from driver_builder.base.memo import remembers_texts
from driver_builder.model.permissions import MAX_NAMESPACE
from kube_api.drain_contract import MAX_PODS, MAX_REQUEST, MAX_RESOURCES
from kube_api.text import printable

SHORTEST, LONGEST = "10s", "6h"
_KEYS = ("pods", "resources", "deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """Pods, by namespace and name, that are to leave if they request one of ``resources``, within so many seconds."""

    pods: frozenset[tuple[str, str]]
    resources: tuple[str, ...]
    deadline_seconds: float


@remembers_texts
def read_drain_request(text: str) -> DrainRequest | str:
    """Return a request, or what is wrong with it: names the field, its value and what to write."""
    try:
        return parse_drain_request(text)
    except ValueError as error:
        return str(error)


def parse_drain_request(text: str) -> DrainRequest:
    """Read a request.

    Raises:
        ValueError: names the field, its value and what to write.
    """
    if len(text) > MAX_REQUEST:
        raise ValueError(f"it is longer than {MAX_REQUEST} characters")
    try:
        content = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON object: {printable(str(error), 100)}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{shown(content)} is no JSON object")  # noqa: TRY004 - it is a text that is wrong
    if unknown := [key for key in content if key not in _KEYS]:
        raise ValueError(f"{shown(unknown[0])} is no field of it: write {', '.join(_KEYS)}")
    pods = _words(content, "pods", MAX_PODS)
    return DrainRequest(
        pods=frozenset(_pod(f"pods[{number}]", pod) for number, pod in enumerate(pods)),
        resources=tuple(_words(content, "resources", MAX_RESOURCES, EXTENDED_RESOURCE)),
        deadline_seconds=_deadline(content),
    )


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, whose keys are there once: which of two counts would be a matter of the reader."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shown(key)} is there twice")
        found[key] = value
    return found


def _words(content: dict[str, Any], key: str, most: int, rule: Rule | None = None) -> list[str]:
    value = content.get(key)
    if not isinstance(value, list) or not 0 < len(value) <= most:
        what = f"has {len(value)} entries" if isinstance(value, list) else f"{shown(value)} is not a list"
        raise ValueError(f"{key}: {what}: write 1 to {most} words")
    for number, word in enumerate(value):
        if not isinstance(word, str):
            raise ValueError(f"{key}[{number}]: {shown(word)} is not a word")  # noqa: TRY004
        if rule is not None and (wrong := rule.wrong_with(word)):
            raise ValueError(f"{key}[{number}]: {shown(word)} {wrong}")
    if len(set(value)) < len(value):
        twice = next(word for number, word in enumerate(value) if word in value[:number])
        raise ValueError(f"{key}: {shown(twice)} is there twice: write it once")
    return value


def _pod(place: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    is_namespace = len(namespace) <= MAX_NAMESPACE and "." not in namespace and not OBJECT_NAME.wrong_with(namespace)
    if not (slash and is_namespace) or OBJECT_NAME.wrong_with(name):
        raise ValueError(f"{place}: {shown(text)} is not a pod: write NAMESPACE/NAME")
    return namespace, name


def _deadline(content: dict[str, Any]) -> float:
    text = content.get("deadline")
    if not isinstance(text, str) or (wrong := DURATION.wrong_with(text)):
        words = wrong if isinstance(text, str) else "is not a duration: write one such as 30m"
        raise ValueError(f"deadline: {shown(text)} {words}")
    if not seconds(SHORTEST) <= seconds(text) <= seconds(LONGEST):
        raise ValueError(f"deadline: {shown(text)} is too short or too long: write one from {SHORTEST} to {LONGEST}")
    return seconds(text)
