"""What the worker and its publish child say to each other: one JSON request in, one JSON line back."""

import json
from collections.abc import Mapping
from typing import NamedTuple, Self

FIELD_MANAGER = "nfd-worker"
"""Who owns our labels in server-side apply; never changes, or the old owner's labels would stay for ever."""


class PublishRequest(NamedTuple):
    """What the Node should carry.

    ``keep_prefixes``: labels of ours with these beginnings stay as the Node has them.
    ``kubeconfig``: None for the pod's service account or the user's default.
    """

    node_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    keep_prefixes: tuple[str, ...] = ()
    kubeconfig: str | None = None

    def to_bytes(self) -> bytes:
        """Serialise; equal requests give equal bytes."""
        return json.dumps(self._asdict(), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Undo :meth:`to_bytes`."""
        values = json.loads(content)
        return cls(**{**values, "keep_prefixes": tuple(values["keep_prefixes"])})


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
