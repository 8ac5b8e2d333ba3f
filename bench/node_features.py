"""What NodeFeature objects of other programs cost the controller: memory, CPU, writes.

``python bench/node_features.py`` lets the controller's own code list and apply 5,000 objects as Node Feature
Discovery's worker writes them, one for each node: 60 labels, and 115 kB of features. There is no API server: pages are
made when they are asked for, and Nodes answer as a server would that keeps who owns which label. Half a minute.

``--objects N`` takes another number. Beside the memory stands what whole objects would take, from a sample.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.scale_parts.process import peak_mib, reset_peak, resident_mib
from bench.scale_parts.recorded import Answer
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.node_feature import NODE_NAME_LABEL
from driver_builder.node_features.sync import NodeFeaturesSync
from kube_api.client import Client
from kube_api.connection import Timeout
from kube_api.resources import NODES

Json = dict[str, Any]

NAMESPACE = "gpu-operator"
LABELS = 60
FEATURE_BYTES = 115_000
SAMPLE = 100
"""Whole objects that are kept for the comparison."""

_FEATURES = [f"CONFIG_OPTION_{number:05}" for number in range(FEATURE_BYTES // 27)]


def labels_of(number: int, generation: int) -> dict[str, str]:
    """Make the labels of an object: most are the same on all nodes, as those of one kind of machine."""
    alike = {f"vendor.example/feature-{place}": "true" for place in range(LABELS - 3)}
    return alike | {
        "vendor.example/machine": f"serial-{number}",
        "vendor.example/rack": f"r{number % 100}",
        "vendor.example/generation": str(generation),
    }


class Server:
    """A :class:`kube_api.connection.Connection` to NodeFeatures and Nodes that are made when they are asked for.

    ``applied`` counts writes of Nodes. ``generation`` is what objects in ``changed`` say, and others do not.
    """

    def __init__(self, objects: int) -> None:
        self.objects = objects
        self.applied = 0
        self.listed_bytes = 0
        self.changed: list[int] = []
        self._version = 10
        self._features = json.dumps({"flags": {}, "instances": {}, "attributes": {
            "kernel.config": {"elements": dict.fromkeys(_FEATURES, "y")}}})  # fmt: skip

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Answer a request."""
        del headers, timeout
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if method == "PATCH":
            return self._apply(json.loads(body or "{}"))
        is_node = parts.path == NODES.path()
        if "watch" in query:
            return Answer(b"".join(self._news(is_node=is_node)))
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        numbers = range(start, min(start + limit, self.objects))
        items = ",".join(self._node(number) if is_node else self.text(number) for number in numbers)
        more = str(numbers.stop) if numbers.stop < self.objects else ""
        text = f'{{"metadata":{{"resourceVersion":"{self._version}","continue":"{more}"}},"items":[{items}]}}'
        self.listed_bytes += 0 if is_node else len(text)
        return Answer(text.encode())

    def text(self, number: int, generation: int = 0) -> str:
        """Write an object."""
        metadata = {
            "namespace": NAMESPACE, "name": f"features-{number}", "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": str(self._version), "labels": {NODE_NAME_LABEL: f"node-{number}"},
        }  # fmt: skip
        labels = json.dumps(labels_of(number, generation))
        return f'{{"metadata":{json.dumps(metadata)},"spec":{{"labels":{labels},"features":{self._features}}}}}'

    def _node(self, number: int) -> str:
        return json.dumps(_node_object(f"node-{number}", str(self._version), {}))

    def _apply(self, body: Json) -> Answer:
        self.applied += 1
        self._version += 1
        metadata = body["metadata"]
        made = _node_object(metadata["name"], str(self._version), metadata.get("labels") or {})
        return Answer(json.dumps(made).encode())

    def _news(self, *, is_node: bool) -> Iterator[bytes]:
        """Say what changed, and that nothing else did."""
        numbers = [] if is_node else self.changed
        for number in numbers:
            self._version += 1
            yield b'{"type":"MODIFIED","object":%s}\n' % self.text(number, generation=1).encode()
        if not is_node:
            self.changed = []
        self._version += 1
        yield json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}).encode()


def _node_object(name: str, version: str, labels: Mapping[str, str]) -> Json:
    fields: Json = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}}
    managed = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}] if labels else []
    metadata = {"name": name, "uid": name, "resourceVersion": version, "labels": labels, "managedFields": managed}
    return {"kind": "Node", "metadata": metadata}


def measure(objects: int) -> dict[str, float]:
    """Let a controller's part take all objects, apply them, and follow a change of one."""
    server = Server(objects)
    client = Client(server)
    cache = ClusterCache(client, namespaces=())
    sync = NodeFeaturesSync(client, cache, namespaces=[NAMESPACE], stop=threading.Event())
    (namespace,) = sync.namespaces
    cache.nodes.repair()
    found: dict[str, float] = {"before": resident_mib()}
    reset_peak()
    began = time.process_time()
    namespace.follower.repair()
    found |= {"list seconds": time.process_time() - began, "peak": peak_mib(), "kept": resident_mib()}
    found["listed MiB"] = server.listed_bytes / 2**20
    whole = [json.loads(server.text(number)) for number in range(SAMPLE)]
    found["whole"] = (resident_mib() - found["kept"]) / len(whole) * objects
    del whole
    # The sample stays with the process for a while: what follows is not compared with what was before.
    began = time.process_time()
    sync.sync()
    found |= {"apply seconds": time.process_time() - began, "applied": server.applied}
    for follower in (cache.nodes, namespace.follower):
        follower.watch(lambda: None, lambda: False)
    sync.sync()
    found["applied at rest"] = server.applied - found["applied"]
    server.changed = [objects // 2]
    namespace.follower.watch(lambda: None, lambda: False)
    began = time.process_time()
    sync.sync()
    found |= {"change seconds": time.process_time() - began, "applied of a change": server.applied - found["applied"]}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What NodeFeature objects of other programs cost the controller.")
    parser.add_argument("--objects", type=int, default=5000, metavar="N")
    objects = parser.parse_args().objects
    found = measure(objects)
    grown, peak = found["kept"] - found["before"], found["peak"] - found["before"]
    each, change = found["list seconds"] / objects, found["change seconds"]
    print(f"{objects} objects of {found['listed MiB'] * 1024 / objects:.0f} KiB, {found['listed MiB']:.0f} MiB in all")
    print(f"memory before              {found['before']:6.1f} MiB, with as many small nodes")
    print(f"  with all objects         {found['kept']:6.1f} MiB: {grown * 1024 / objects:.2f} KiB for each")
    print(f"  peak while it lists      {found['peak']:6.1f} MiB: {peak:.1f} MiB above")
    print(f"  whole objects would take {found['whole']:6.0f} MiB: {found['whole'] / max(grown, 0.1):.0f} times as much")
    print(f"CPU to list                {found['list seconds']:6.1f} s: {each * 1000:.2f} ms each")
    print(f"CPU to apply               {found['apply seconds']:6.1f} s, {found['applied']:.0f} writes")
    print(f"at rest                    {found['applied at rest']:6.0f} writes")
    print(f"one object changed         {change * 1000:6.1f} ms CPU, {found['applied of a change']:.0f} write")
    print(f"                           1 part in {found['apply seconds'] / max(change, 1e-6):.0f} of all")


if __name__ == "__main__":
    main()
