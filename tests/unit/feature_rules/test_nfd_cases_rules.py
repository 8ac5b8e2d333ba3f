"""Known answers of Node Feature Discovery about rules, run as data (tests/data/nfd_cases.yaml)."""

import json
from typing import Any

import pytest

from feature_rules.errors import MatchError
from feature_rules.expression import match_expression
from feature_rules.load import load_rules
from feature_rules.match import Elements, is_feature_name, match_expressions, match_name
from feature_rules.model import MatchExpression
from feature_rules.run import run_rules
from nfd_worker.cli.feature_document import parse_features
from tests.support.nfd_worker.nfd_cases import of


def expression(given: dict[str, Any]) -> MatchExpression:
    """Make a condition of a case's mapping."""
    return MatchExpression(given["op"], tuple(given.get("value", ())), given.get("type", ""))


def elements(given: dict[str, Any]) -> Elements:
    """Make the elements that a case gives: null is absent, which is not the same as empty."""
    flags, instances = given["flags"], given["instances"]
    return Elements(
        flags=None if flags is None else frozenset(flags),
        attributes=given["attributes"],
        instances=None if instances is None else tuple(instances),
    )


@of("match_expression")
def test_match_expression(case: dict[str, Any]) -> None:
    """One operator on one element gives upstream's result."""
    given, expected = case["input"], case["expect"]
    if expected["error"]:
        with pytest.raises(MatchError):
            match_expression(expression(given), present=given["present"], value=given["element"])
    else:
        matched = match_expression(expression(given), present=given["present"], value=given["element"])
        assert matched == expected["match"]


@of("match_set")
def test_match_set(case: dict[str, Any]) -> None:
    """A set of expressions on the elements of one feature, and which of them matched."""
    given, expected = case["input"], case["expect"]
    expressions = {name: expression(one) for name, one in given["matchExpressions"].items()}
    if expected["error"]:
        with pytest.raises(MatchError):
            match_expressions(expressions, elements(given))
    else:
        matched = match_expressions(expressions, elements(given))
        assert (matched is not None, matched or []) == (expected["match"], expected["matched"])


@of("match_name")
def test_match_name(case: dict[str, Any]) -> None:
    """A condition on the names of the elements of one feature."""
    given, expected = case["input"], case["expect"]
    if expected["error"]:
        with pytest.raises(MatchError):
            match_name(expression(given["matchName"]), elements(given))
    else:
        matched = match_name(expression(given["matchName"]), elements(given))
        assert (matched is not None, matched or []) == (expected["match"], expected["matched"])


@of("rule")
def test_rule(case: dict[str, Any]) -> None:
    """A whole rule, from its text to its labels and variables; an error shows when it is loaded or when it runs."""
    expected = case["expect"]
    loaded = load_rules(json.dumps([case["input"]["rule"]]), "case.yaml", dialect="rule")
    outputs = run_rules(loaded.rules, parse_features(case["input"]["features"], "case.yaml"))
    assert bool(loaded.problems or outputs.problems) == expected["error"], (loaded.problems, outputs.problems)
    assert [(dict(one.labels), dict(one.vars)) for one in outputs.matched] == (
        [(expected["labels"], expected["vars"])] if expected["match"] else []
    )


@of("validate_feature_name")
def test_validate_feature_name(case: dict[str, Any]) -> None:
    """The name of a feature has a domain."""
    assert is_feature_name(case["input"]["feature"]) == case["expect"]["valid"]
