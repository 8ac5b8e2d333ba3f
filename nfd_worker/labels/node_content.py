"""What the worker wants a Node to carry, and what it left out: the values that travel from rules to publishing.

NamedTuples, because ``dataclasses`` would cost the resident process 2.8 MiB.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from feature_rules.model import Taint
from kube_api.text import quoted

_NONE: Mapping[str, str] = MappingProxyType({})

_LONGEST_QUOTE = 80


class NodeContent(NamedTuple):
    """What a Node should carry: full keys, sorted; ``extended_resources`` are Kubernetes quantities."""

    labels: Mapping[str, str] = _NONE
    annotations: Mapping[str, str] = _NONE
    extended_resources: Mapping[str, str] = _NONE
    taints: tuple[Taint, ...] = ()


Origins = Mapping[str, tuple[str, ...]]
"""A rule or a file -> the keys of labels, annotations, extended resources and taints that it wants, sorted."""

NO_ORIGINS: Origins = MappingProxyType({})


OpenKeys = Mapping[str, tuple[str, ...] | None]
"""A rule or a file -> the keys that it may want, sorted; None for any."""


class Unknown(NamedTuple):
    """What could not be read since the worker's start: what it made of the Node before must stay.

    ``prefixes``: the beginnings of the label keys of the sources that could not be read.
    ``origins``: the files that could not be read or used, as in the record of what made what; one that ends in ``/`` is
    a directory that could not be listed, and stands for all in it.
    ``rules``: what rules may make of the features of the sources that could not be read.
    ``file_rules``: what they may make of those of the feature files among ``origins``.
    ``known_prefixes``: the beginnings of the label keys of the sources that were read.
    """

    prefixes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rules: OpenKeys = NO_ORIGINS
    file_rules: OpenKeys = NO_ORIGINS
    known_prefixes: tuple[str, ...] = ()


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
        return f"{self.origin}: {self.kind} {self.shown} left out: {self.message}"

    @property
    def shown(self) -> str:
        """Key and value in a message, with the blank or the control character that can be what is wrong with them."""
        return f"{quoted(self.key, _LONGEST_QUOTE)}={quoted(self.value, _LONGEST_QUOTE)}"
