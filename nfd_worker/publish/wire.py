"""What the worker and its publish child say to each other: one JSON request in, one JSON line back."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from feature_rules.model import Taint
from nfd_worker.labels.node_content import NO_ORIGINS, NodeContent, Origins, Unknown

FIELD_MANAGER = "nfd-worker"
"""Who owns our labels in server-side apply; never changes, or the old owner's labels would stay for ever."""

PUBLISH = "publish"
UNPUBLISH = "unpublish"
CHECK = "check"

_NONE: Mapping[str, str] = MappingProxyType({})


class Seen(NamedTuple):
    """The Node as it was when it carried all that was asked for: what a check compares it with.

    ``uid``: which object. ``version``: its ``resourceVersion`` when taints and capacity were right; empty for unknown.
    ``tracked``: the annotations that say which taints and extended resources are ours.
    """

    uid: str = ""
    version: str = ""
    tracked: Mapping[str, str] = _NONE


class PublishRequest(NamedTuple):
    """What the Node should carry.

    ``unknown``: what was never read since the start: what it made of the Node stays. None when all was read.
    ``origins``: which rule and which file wants which keys; kept on the Node for the next worker.
    ``take_over``: also remove what an upstream Node Feature Discovery left on the Node, and become its only owner.
    ``kubeconfig``: None for the pod's service account or the user's default.
    ``action``: :data:`PUBLISH`; :data:`CHECK` to publish only if the Node has lost something of it since it was
    ``seen``, with ``is_full`` also taints and extended resources; or :data:`UNPUBLISH` to remove all that is ours,
    whatever ``content`` says.
    """

    node_name: str
    content: NodeContent
    unknown: Unknown | None = None
    origins: Origins = NO_ORIGINS
    take_over: bool = False
    kubeconfig: str | None = None
    action: str = PUBLISH
    seen: Seen = Seen()
    is_full: bool = False

    def to_bytes(self) -> bytes:
        """Serialise; equal requests give equal bytes."""
        unknown = None if self.unknown is None else self.unknown._asdict()
        nested = {"content": self.content._asdict(), "unknown": unknown, "seen": self.seen._asdict()}
        values = {**self._asdict(), **nested}
        return json.dumps(values, sort_keys=True, default=dict).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Undo :meth:`to_bytes`."""
        values = json.loads(content)
        wanted = values.pop("content")
        taints = tuple(Taint(*taint) for taint in wanted.pop("taints"))
        unknown = values.pop("unknown")
        origins = {origin: tuple(keys) for origin, keys in values.pop("origins").items()}
        return cls(
            content=NodeContent(**wanted, taints=taints),
            unknown=None if unknown is None else _unknown(unknown),
            origins=origins,
            seen=Seen(**values.pop("seen")),
            **values,
        )


def _unknown(values: dict[str, Any]) -> Unknown:
    fields: Any = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    for name in ("rules", "file_rules"):
        fields[name] = {origin: keys if keys is None else tuple(keys) for origin, keys in values[name].items()}
    return Unknown(**fields)


class PublishAnswer(NamedTuple):
    """How it went.

    ``error``: empty on success. ``kind``: the class of error. ``retry_after``: seconds, where the API server asked.
    ``notes``: what was left undone although the rest is published, a sentence each.
    ``took_over``: what was taken from an upstream Node Feature Discovery, in words; empty when nothing was.
    ``seen``: the Node as it was left. ``lost``: what a check found missing and published again, in words.
    """

    error: str = ""
    kind: str = ""
    retry_after: float | None = None
    notes: tuple[str, ...] = ()
    took_over: str = ""
    seen: Seen = Seen()
    lost: tuple[str, ...] = ()

    @property
    def is_published(self) -> bool:
        """Whether the Node carries what was asked for."""
        return not self.error

    def to_line(self) -> str:
        """Serialise into one line."""
        return json.dumps({**self._asdict(), "seen": self.seen._asdict()}, default=dict) + "\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self | None:
        """Undo :meth:`to_line`; None when it is not an answer, because the child died before it could say it."""
        try:
            values = json.loads(line)
            texts = {name: tuple(values.get(name, ())) for name in ("notes", "lost")}
            return cls(**{**values, **texts, "seen": Seen(**values.get("seen", {}))})
        except (ValueError, TypeError, AttributeError):
            return None
