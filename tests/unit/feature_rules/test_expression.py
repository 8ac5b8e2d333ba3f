"""One condition on one element, beyond the known answers of test_nfd_cases_rules.py."""

import pytest

from feature_rules.errors import MatchError
from feature_rules.expression import check_expression, match_expression
from feature_rules.model import OPERATORS, MatchExpression

VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(OPERATORS, ()),
    **dict.fromkeys(("In", "NotIn", "InRegexp", "Gt", "Ge", "Lt", "Le"), ("5",)),
    **dict.fromkeys(("GtLt", "GeLe"), ("3", "5")),
}
"""Operator -> values that make sense for it."""


def expression(op: str, *values: str, kind: str = "") -> MatchExpression:
    """Make a condition."""
    return MatchExpression(op, values, kind)


@pytest.mark.parametrize(
    ("op", "holding"),
    [
        pytest.param("", {"missing", "flag", "2", "3", "4", "5", "true", "false"}, id="any"),
        pytest.param("Exists", {"flag", "2", "3", "4", "5", "true", "false"}, id="Exists"),
        pytest.param("DoesNotExist", {"missing"}, id="DoesNotExist"),
        pytest.param("In", {"5"}, id="In"),
        pytest.param("NotIn", {"2", "3", "4", "true", "false"}, id="NotIn"),
        pytest.param("InRegexp", {"5"}, id="InRegexp"),
        pytest.param("IsTrue", {"true"}, id="IsTrue"),
        pytest.param("IsFalse", {"false"}, id="IsFalse"),
    ],
)
def test_what_an_operator_holds_for(op: str, holding: set[str]) -> None:
    """A missing element and a flag hold only for operators that ask for presence."""
    elements: dict[str, tuple[bool, str | None]] = {"missing": (False, None), "flag": (True, None)}
    elements |= {value: (True, value) for value in ("2", "3", "4", "5", "true", "false")}
    condition = expression(op, *VALUES[op])
    assert {
        name for name, (present, value) in elements.items() if match_expression(condition, present=present, value=value)
    } == holding


@pytest.mark.parametrize(
    ("op", "holding"),
    [("Gt", "6"), ("Ge", "56"), ("Lt", "234"), ("Le", "2345"), ("GtLt", "4"), ("GeLe", "345")],
)
@pytest.mark.parametrize("kind", ["", "version"], ids=["integers", "versions"])
def test_what_a_comparison_holds_for(op: str, holding: str, kind: str) -> None:
    """Gt, Lt and GtLt exclude their bounds; Ge, Le and GeLe include them."""
    condition = expression(op, *VALUES[op], kind=kind)
    assert {value for value in "23456" if match_expression(condition, present=True, value=value)} == set(holding)


def test_integers_compare_by_number() -> None:
    """10 is more than 9, which texts are not."""
    assert match_expression(expression("Gt", "9"), present=True, value="10")


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(expression("In"), id="In without values"),
        pytest.param(expression("InRegexp", "("), id="bad pattern"),
        pytest.param(expression("InRegexp", "a", "("), id="bad pattern behind one that matches"),
        pytest.param(expression("Gt", "x"), id="not an integer"),
        pytest.param(expression("Gt", "1", "2"), id="two values for one"),
        pytest.param(expression("GtLt", "2", "1"), id="range the wrong way round"),
        pytest.param(expression("GeLe", "1", "1"), id="range of one number"),
        pytest.param(expression("IsTrue", "true"), id="value for IsTrue"),
        pytest.param(expression("Lt", "1", kind="semver"), id="unknown type"),
        pytest.param(expression("Le", "x", kind="version"), id="not a version"),
    ],
)
class TestArgumentsThatMakeNoSense:
    """Conditions that nothing can meet."""

    def test_are_an_error_for_a_value(self, condition: MatchExpression) -> None:
        """With a value to compare, the arguments are looked at."""
        with pytest.raises(MatchError):
            match_expression(condition, present=True, value="a")

    @pytest.mark.parametrize("present", [False, True], ids=["missing", "flag"])
    def test_do_not_matter_without_a_value(self, condition: MatchExpression, present: bool) -> None:
        """Nothing to compare: the condition just does not hold."""
        assert not match_expression(condition, present=present, value=None)

    def test_are_found_beforehand(self, condition: MatchExpression) -> None:
        """A wrong condition is found by the check, before any element is known."""
        with pytest.raises(MatchError):
            check_expression(condition)


@pytest.mark.parametrize("op", ["", "Exists", "DoesNotExist", "in", "GreaterThan"])
def test_presence_and_unknown_operators_are_checked_without_an_element(op: str) -> None:
    """Exists with a value, and unknown operators, fail without an element as well."""
    condition = expression(op, "1")
    with pytest.raises(MatchError):
        match_expression(condition, present=False, value=None)
    with pytest.raises(MatchError):
        check_expression(condition)


@pytest.mark.parametrize("op", OPERATORS)
def test_sensible_arguments_pass_the_check(op: str) -> None:
    """For every operator the check accepts some arguments."""
    check_expression(expression(op, *VALUES[op]))
    assert match_expression(expression(op, *VALUES[op]), present=True, value="4") in (True, False)


def test_a_range_of_versions_may_be_empty() -> None:
    """As upstream: only integer ranges are checked; an empty one holds for nothing."""
    condition = expression("GtLt", "2.0", "1.0", kind="version")
    check_expression(condition)
    assert not match_expression(condition, present=True, value="1.5")


def test_a_bound_is_a_version_to_the_letter() -> None:
    """A bound with a distribution's suffix is a mistake of the rule, whatever the node's value may have."""
    condition = expression("Ge", "5.14.0-427.el9_4.x86_64", kind="version")
    with pytest.raises(MatchError, match="is not a version"):
        check_expression(condition)


def test_a_type_matters_for_comparisons_only() -> None:
    """``type`` has no effect on operators that do not compare."""
    assert match_expression(expression("In", "a", kind="semver"), present=True, value="a")
