"""The rules that come with the worker, as in Node Feature Discovery: they run before those of the configuration.

Values and not YAML: so that they cost nothing to load, and cannot fail to.
"""

from feature_rules.model import FeatureMatcher, MatchExpression, Rule

_ORIGIN = "rule built-in"

_MELLANOX = "15b3"
"""PCI vendor id of the network adapters that are taken to be capable of RDMA."""

BUILT_IN_RULES = (
    Rule(
        name="rdma.capable",
        origin=f"{_ORIGIN}/rdma.capable",
        labels={"rdma.capable": "true"},
        match_features=(FeatureMatcher("pci.device", {"vendor": MatchExpression("In", (_MELLANOX,))}),),
    ),
    Rule(
        name="rdma.available",
        origin=f"{_ORIGIN}/rdma.available",
        labels={"rdma.available": "true"},
        match_features=(
            FeatureMatcher(
                "kernel.loadedmodule", {"ib_uverbs": MatchExpression("Exists"), "rdma_ucm": MatchExpression("Exists")}
            ),
        ),
    ),
)
"""Labels without a namespace become ``feature.node.kubernetes.io/<name>``."""
