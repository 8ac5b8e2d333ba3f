"""Features from a document: both shapes, and messages that name the place."""

import pytest

from feature_rules.features import Features
from nfd_worker.cli.feature_document import parse_features
from nfd_worker.errors import ConfigurationError

FEATURES = Features(
    flags={"cpu.cpuid": frozenset({"ADX", "AVX2"})},
    attributes={"kernel.version": {"full": "6.1.0", "elements": "x"}},
    instances={"pci.device": ({"class": "0300", "attributes": "y"},)},
)


def test_the_plain_shape() -> None:
    """Lists of flags, mappings of attributes, lists of instances."""
    document = {
        "flags": {"cpu.cpuid": ["ADX", "AVX2"]},
        "attributes": {"kernel.version": {"full": "6.1.0", "elements": "x"}},
        "instances": {"pci.device": [{"class": "0300", "attributes": "y"}]},
    }
    assert parse_features(document, "f.yaml") == FEATURES


def test_the_shape_of_a_node_feature_object() -> None:
    """Features are read from the additional level of nesting in a NodeFeature object."""
    document = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": "node-1"},
        "spec": {
            "labels": {},
            "features": {
                "flags": {"cpu.cpuid": {"elements": {"ADX": {}, "AVX2": {}}}},
                "attributes": {"kernel.version": {"elements": {"full": "6.1.0", "elements": "x"}}},
                "instances": {"pci.device": {"elements": [{"attributes": {"class": "0300", "attributes": "y"}}]}},
            },
        },
    }
    assert parse_features(document, "f.yaml") == FEATURES


@pytest.mark.parametrize(
    "document", [{}, {"flags": None}, {"spec": {}}, {"spec": {"features": None}}, {"flags": {}, "instances": {}}]
)
def test_nothing_is_no_features(document: object) -> None:
    """Kinds of features that the document leaves out are empty."""
    assert parse_features(document, "f.yaml") == Features({}, {}, {})


def test_empty_features_are_there() -> None:
    """Looked for and empty is not the same as never looked for."""
    document = {"flags": {"a.b": []}, "attributes": {"c.d": {}}, "instances": {"e.f": []}}
    assert parse_features(document, "f.yaml") == Features({"a.b": frozenset()}, {"c.d": {}}, {"e.f": ()})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (["a"], "the document must be a mapping with strings as keys"),
        ({"flag": {}}, "flag is not one of flags, attributes, instances"),
        ({"spec": []}, "spec must be a mapping with strings as keys"),
        ({"flags": ["a.b"]}, "flags must be a mapping with strings as keys"),
        ({"flags": {1: []}}, "flags must be a mapping with strings as keys"),
        ({"flags": {"a.b": "ADX"}}, "flags.a.b must be a list of strings"),
        ({"flags": {"a.b": [1]}}, "flags.a.b must be a list of strings"),
        ({"attributes": {"a.b": ["x"]}}, "attributes.a.b must be a mapping with strings as keys"),
        ({"attributes": {"a.b": {"x": 6}}}, "attributes.a.b.x must be a string; put 6 in quotes"),
        ({"instances": {"a.b": {"x": "y"}}}, "instances.a.b must be a list of mappings"),
        ({"instances": {"a.b": ["x"]}}, "instances.a.b[0] must be a mapping with strings as keys"),
        ({"instances": {"a.b": [{}, {"x": True}]}}, "instances.a.b[1].x must be a string; put True in quotes"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(document: object, message: str) -> None:
    """The file, the place in it, and what should be there."""
    with pytest.raises(ConfigurationError) as raised:
        parse_features(document, "f.yaml")
    assert str(raised.value) == f"f.yaml: {message}"
