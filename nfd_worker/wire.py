"""What the worker and its publish child say to each other: one JSON request in, one JSON line back."""

import json
from typing import NamedTuple, Self

from nfd_worker.node_content import NodeContent, Taint

FIELD_MANAGER = "nfd-worker"
"""Who owns our labels in server-side apply; never changes, or the old owner's labels would stay for ever."""


class PublishRequest(NamedTuple):
    """What the Node should carry.

    ``known_prefixes``: None when all was read. Else some source was never read since the start: whatever of ours the
    Node carries stays, unless its key begins with one of these.
    ``take_over``: also remove what an upstream Node Feature Discovery left on the Node, in the same write.
    ``kubeconfig``: None for the pod's service account or the user's default.
    """

    node_name: str
    content: NodeContent
    known_prefixes: tuple[str, ...] | None = None
    take_over: bool = False
    kubeconfig: str | None = None

    def to_bytes(self) -> bytes:
        """Serialise; equal requests give equal bytes."""
        return json.dumps({**self._asdict(), "content": self.content._asdict()}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Undo :meth:`to_bytes`."""
        values = json.loads(content)
        wanted = values.pop("content")
        taints = tuple(Taint(*taint) for taint in wanted.pop("taints"))
        known = values.pop("known_prefixes")
        return cls(
            content=NodeContent(**wanted, taints=taints),
            known_prefixes=None if known is None else tuple(known),
            **values,
        )


class PublishAnswer(NamedTuple):
    """How it went: ``error`` is empty on success; ``kind`` is the class of error; ``retry_after`` in seconds."""

    error: str = ""
    kind: str = ""
    retry_after: float | None = None

    @property
    def is_published(self) -> bool:
        """Whether the Node carries what was asked for."""
        return not self.error

    def to_line(self) -> str:
        """Serialise into one line."""
        return json.dumps(self._asdict()) + "\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self | None:
        """Undo :meth:`to_line`; None when it is not an answer, because the child died before it could say it."""
        try:
            return cls(**json.loads(line))
        except (ValueError, TypeError):
            return None
