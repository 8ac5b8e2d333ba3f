"""Known answers of Node Feature Discovery about whole nodes: features and rules in, what the Node carries out."""

import json
from typing import Any

from feature_rules.load import API_VERSION, KIND, load_rules
from feature_rules.run import run_rules
from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.cli.feature_document import parse_features
from nfd_worker.config.config import build_settings
from nfd_worker.config.config_file import parse_file
from nfd_worker.labels.labels import CLUSTER, make_content
from tests.support.nfd_worker.nfd_cases import of


def as_objects(node_feature_rules: list[dict[str, Any]]) -> str:
    """Write rules as the objects of a cluster, in the order of their names."""
    objects = [
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": one["name"]}, "spec": {"rules": one["rules"]}}
        for one in sorted(node_feature_rules, key=lambda one: str(one["name"]))
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@of("node_result")
def test_node_result(case: dict[str, Any]) -> None:
    """Labels of the node's own NodeFeature object are those of its sources; objects of others do not exist here."""
    given, expected = case["input"], case["expect"]
    features = parse_features(given.get("features", {}), "features")
    labels = {one["name"]: one["labels"] for one in given.get("node_features", [])}
    source_labels = {"fake": labels[given["node"]]} if labels else {}
    loaded = load_rules(as_objects(given["node_feature_rules"]), "rules", dialect="rule")
    options = build_settings(parse_file(json.dumps(given.get("config", {})), "config")).namespaces

    ran = run_rules(loaded.rules, features)
    content = make_content(source_labels, {CLUSTER: ran}, features, options).content

    assert not loaded.problems
    assert not ran.problems
    annotations = {"nfd.node.kubernetes.io/extended-resources": tracked(content.extended_resources)}
    made = {
        "labels": content.labels,
        "capacity": content.extended_resources,
        "taints": list(content.taints),
        "annotations": {**content.annotations, **{key: value for key, value in annotations.items() if value}},
    }
    assert {kind: made[kind] for kind in expected} == expected


def tracked(keys: Any) -> str:
    """Write keys as upstream's annotation does; the names alone are compared, for here field managers keep track."""
    return ",".join(sorted(key.removeprefix(f"{FEATURE_LABEL_PREFIX}/") for key in keys))
