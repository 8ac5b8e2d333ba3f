"""What a Node of the API server says, as a value of the snapshot. Pure; what others wrote is capped here."""

from driver_builder.cluster.read_metadata import Json
from driver_builder.model.kernels import MAX_LENGTH
from driver_builder.objects import loaded
from driver_builder.observed.inventory import Node
from kube_api import names
from kube_api.text import bounded_token

MAX_ANNOTATION = 16384
"""Characters of an annotation of ours on a Node; a longer one is none. Of a rebuild annotation a digest is kept."""
_LONGEST = {
    names.BOOT_ID_ANNOTATION: 64,
    names.KERNEL_VERSION_ANNOTATION: MAX_LENGTH,
    names.REBUILD_ANNOTATION: 1 << 20,
}


def read_node(obj: Json) -> Node:
    """Read a Node: its labels, and the annotations that are ours."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        annotations={
            key: bounded_token(value) if key == names.REBUILD_ANNOTATION else value
            for key, value in annotations.items()
            # Ours alone: others hold up to 256 KiB each, on thousands of nodes.
            if key.startswith(f"{names.GROUP}/") and len(value) <= _LONGEST.get(key, MAX_ANNOTATION)
        }
        # One that is too long is not unknown: it is there, and cannot be read.
        | {key: value[: loaded.MAX_BYTES + 1] for key, value in annotations.items() if key.startswith(loaded.PREFIX)},
    )
