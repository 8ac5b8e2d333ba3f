"""The rules that come with the worker."""

import pytest

from feature_rules.features import Features
from feature_rules.run import run_rules
from nfd_worker.config.built_in_rules import BUILT_IN_RULES


def mellanox(vendor: str) -> Features:
    """One PCI device."""
    return Features(instances={"pci.device": ({"class": "0200", "vendor": vendor},)})


def modules(*names: str) -> Features:
    """Some loaded modules."""
    return Features(flags={"kernel.loadedmodule": frozenset(names)})


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        pytest.param(Features(), [], id="nothing known"),
        pytest.param(mellanox("8086"), [], id="another vendor"),
        pytest.param(mellanox("15b3"), [{"rdma.capable": "true"}], id="an adapter"),
        pytest.param(modules("ib_uverbs"), [], id="one module of two"),
        pytest.param(modules("ib_uverbs", "rdma_ucm", "x"), [{"rdma.available": "true"}], id="both modules"),
    ],
)
def test_rdma_is_labelled(features: Features, expected: list[dict[str, str]]) -> None:
    """Nodes get the RDMA labels for an adapter, and for the modules that use it."""
    outputs = run_rules(BUILT_IN_RULES, features)
    assert [dict(output.labels) for output in outputs.matched] == expected
    assert not outputs.problems
