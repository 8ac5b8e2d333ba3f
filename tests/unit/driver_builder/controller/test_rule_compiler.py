"""NodeFeatureRule objects to the workers' ConfigMap, and what is said about those that cannot work."""

from typing import Any

import yaml

from driver_builder.controller.rule_compiler import LARGEST_CONFIG_MAP, compile_rules
from feature_rules.load import load_rules

Json = dict[str, Any]

GOOD: Json = {"name": "fpga", "labels": {"fpga": "true"}, "matchFeatures": [{"feature": "pci.device"}]}
BAD: Json = {
    "name": "typo",
    "labels": {"x": "y"},
    "matchFeatures": [{"feature": "pci.device", "matchExpressions": {"vendor": {"op": "Inn", "value": ["1"]}}}],
}


def rule_object(name: str, *rules: Json) -> Json:
    """Make an object as the API server gives it."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "managedFields": []}
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": metadata,
        "spec": {"rules": list(rules)},
    }


def test_no_objects_make_an_empty_config_map() -> None:
    """Rules that are gone go from the nodes, too."""
    assert compile_rules([]).data == {}


def test_an_object_becomes_a_key_that_loads_again() -> None:
    """What the worker reads is what the admin wrote."""
    compiled = compile_rules([rule_object("boards", GOOD)])
    assert not compiled.problems
    (text,) = compiled.data.values()
    assert list(compiled.data) == ["boards.yaml"]
    assert [rule.name for rule in load_rules(text, "boards.yaml").rules] == ["fpga"]
    assert yaml.safe_load(text)["spec"]["rules"] == [GOOD]


def test_nothing_but_name_and_rules_is_handed_on() -> None:
    """Resource versions would change the ConfigMap, and with it every worker, without need."""
    (text,) = compile_rules([rule_object("boards", GOOD)]).data.values()
    assert yaml.safe_load(text)["metadata"] == {"name": "boards"}


def test_a_bad_rule_does_not_stop_the_good_one_beside_it() -> None:
    """The good one is handed on, the bad one is a problem of its object that names rule and operator."""
    compiled = compile_rules([rule_object("boards", BAD, GOOD)])
    assert [rule["name"] for rule in yaml.safe_load(compiled.data["boards.yaml"])["spec"]["rules"]] == ["fpga"]
    ((subject, problems),) = compiled.problems.items()
    assert (subject.name, subject.uid) == ("boards", "uid-boards")
    assert "typo" in str(problems[0])
    assert "Inn" in str(problems[0])


def test_an_object_of_bad_rules_only_is_left_out() -> None:
    """There is nothing in it for a worker."""
    compiled = compile_rules([rule_object("wrong", BAD), rule_object("boards", GOOD)])
    assert list(compiled.data) == ["boards.yaml"]
    assert [subject.name for subject in compiled.problems] == ["wrong"]


def test_what_does_not_fit_is_reported_and_the_rest_goes_on() -> None:
    """A ConfigMap holds a megabyte; objects are taken by name, so that the choice is the same every time."""
    huge = {**GOOD, "annotations": {"note": "x" * (LARGEST_CONFIG_MAP - 500)}}
    compiled = compile_rules([rule_object("c", GOOD), rule_object("b", huge), rule_object("a", huge)])
    assert list(compiled.data) == ["a.yaml", "c.yaml"]
    ((subject, problems),) = compiled.problems.items()
    assert subject.name == "b"
    assert "nfd-worker-rules" in problems[0].message


def test_the_order_of_objects_does_not_matter() -> None:
    """Lists of the API server are in no promised order."""
    one, two = rule_object("a", GOOD), rule_object("b", GOOD)
    assert compile_rules([one, two]) == compile_rules([two, one])


class Bug(dict[str, Any]):
    """A rule that nobody foresaw: it cannot be read at all."""

    def items(self) -> Any:
        """Fail as a bug of ours would."""
        raise RecursionError("nobody foresaw it")


def test_a_bug_that_one_object_hits_leaves_that_one_out() -> None:
    """The others are handed on, and its Event says what happened."""
    compiled = compile_rules([rule_object("a", Bug(GOOD)), rule_object("b", GOOD)])
    assert list(compiled.data) == ["b.yaml"]
    ((subject, problems),) = compiled.problems.items()
    assert subject.name == "a"
    assert "internal error: RecursionError" in problems[0].message
