"""``python -m bench.scale_parts.typed FOLDER ours|typed``: hold a fleet's Nodes and pods, decoded in one of two ways.

``typed`` are the models of the official client, ``ours`` what the controller keeps of each object. Both read the same
pages. Prints MiB beside those of the empty process, and CPU milliseconds.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.scale_parts.process import peak_mib, resident_mib

PAGES = {"nodes": 50, "pods": 200}
"""Objects of a page, as the controller lists them."""
MOST = 2000
"""Objects of each kind: the typed models of more take minutes."""

Decode = Callable[[str, str], list[Any]]


def pages(path: Path, size: int, most: int = MOST) -> Iterator[str]:
    """Make the text of each page of a listing."""
    with path.open() as file:
        left = most
        while lines := [line.rstrip() for line in (file.readline() for _ in range(min(size, left))) if line]:
            left -= len(lines)
            yield f'{{"apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{",".join(lines)}]}}'


def typed() -> Decode:
    """Import the official client; gives what decodes a page into its models."""
    from kubernetes.client import ApiClient  # noqa: PLC0415 - the other way does without it

    client = ApiClient()
    kinds = {"nodes": "V1NodeList", "pods": "V1PodList"}

    def decode(plural: str, text: str) -> list[Any]:
        items: list[Any] = client.deserialize(text, kinds[plural], "application/json").items
        return items

    return decode


def ours() -> Decode:
    """Import the controller's readers; gives what decodes a page into what it keeps."""
    from driver_builder.cluster.read_pods import read_owned_pod  # noqa: PLC0415 - the other way does without it
    from driver_builder.snapshot.inventory import read_node  # noqa: PLC0415 - as above

    readers: dict[str, Callable[[Any], Any]] = {"nodes": read_node, "pods": read_owned_pod}

    def decode(plural: str, text: str) -> list[Any]:
        return [readers[plural](obj) for obj in json.loads(text)["items"]]

    return decode


def main() -> None:
    """Decode, hold, and print."""
    folder, way = Path(sys.argv[1]), {"typed": typed, "ours": ours}[sys.argv[2]]
    decode = way()
    empty, began = resident_mib(), time.process_time()
    held = [
        (plural, decode(plural, text))
        for plural, size in PAGES.items()
        for text in pages(folder / f"{plural}.jsonl", size)
    ]
    used = time.process_time() - began
    counts = {plural: sum(len(items) for name, items in held if name == plural) for plural in PAGES}
    print(json.dumps({**counts, "empty": empty, "mib": resident_mib() - empty, "peak": peak_mib(), "ms": used * 1000}))


if __name__ == "__main__":
    main()
