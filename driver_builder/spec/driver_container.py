"""The DriverContainer object: what an admin asks for, and what we said about it last, as a frozen value.

``parse`` is pure. A spec that cannot be acted on becomes :class:`InvalidDriver` with a message that names the field,
its value and the remedy (``spec_parser``); the object itself stays readable so that its status can say so.
"""

from dataclasses import dataclass
from typing import Any

from driver_builder.errors import InvalidDriver
from driver_builder.spec.driver_spec import DriverSpec
from driver_builder.spec.spec_parser import parse_spec
from kube_api import names

Json = dict[str, Any]

FINALIZER = f"{names.GROUP}/cleanup"

MAX_NAMES_LENGTH = 56
"""``<namespace>.<name>.ready`` is the name part of a label key, which has at most 63 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContainer:
    """One DriverContainer. ``spec`` is an error where it cannot be acted on; ``status`` is what we wrote last."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: DriverSpec | InvalidDriver
    status: Json
    rebuild: str | None
    paused: bool
    deleting: bool
    has_finalizer: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def ready_label(self) -> str:
        """The node label that says this driver works there."""
        return names.ready_label(self.namespace, self.name)


def parse(obj: Json) -> DriverContainer:
    """Read a DriverContainer object as the API server gives it."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        check_names(metadata)
        spec: DriverSpec | InvalidDriver = parse_spec(obj.get("spec") or {})
    except InvalidDriver as error:
        spec = error
    return DriverContainer(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 1)),
        spec=spec,
        status=obj.get("status") or {},
        rebuild=annotations.get(names.REBUILD_ANNOTATION) or None,
        paused=annotations.get(names.PAUSE_ANNOTATION) == "true",
        deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or []),
    )


def check_names(metadata: Json) -> None:
    """Check that the names leave room for the ready label.

    Raises:
        InvalidDriver: when they do not.
    """
    length = len(metadata["namespace"]) + len(metadata["name"])
    if length > MAX_NAMES_LENGTH:
        raise InvalidDriver(
            f"metadata.name: {metadata['name']!r} and its namespace have {length} characters together; "
            f"the ready label leaves room for {MAX_NAMES_LENGTH}: choose shorter names"
        )
