"""What the worker wants a Node to carry, and what it left out: the values that travel from rules to publishing.

NamedTuples, because ``dataclasses`` would cost the resident process 2.8 MiB.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NONE: Mapping[str, str] = MappingProxyType({})

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Effects of a taint, as the API server spells them."""


class Taint(NamedTuple):
    """A taint of a Node; ``effect`` is one of :data:`EFFECTS`, ``value`` may be empty."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeContent(NamedTuple):
    """What a Node should carry: full keys, sorted; ``extended_resources`` are Kubernetes quantities."""

    labels: Mapping[str, str] = _NONE
    annotations: Mapping[str, str] = _NONE
    extended_resources: Mapping[str, str] = _NONE
    taints: tuple[Taint, ...] = ()


class Refusal(NamedTuple):
    """Something that was left out, and why.

    ``origin``: the rule, file or source that wanted it, such as ``rule my-rules/fpga`` or ``source pci``.
    ``kind``: label, annotation, extended resource or taint.
    ``reason``: one word for the metric, such as ``invalid-key`` or ``ns-not-allowed``.
    ``message``: a sentence for people.
    """

    origin: str
    kind: str
    key: str
    value: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.kind} {self.key}={self.value} left out: {self.message}"
