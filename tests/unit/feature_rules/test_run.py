"""All rules in order: outputs, what later rules see of earlier ones, and rules that fail."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from feature_rules.errors import MatchError
from feature_rules.features import Features
from feature_rules.load import load_rules
from feature_rules.model import FeatureMatcher, MatchExpression, Rule, RuleOutput, RuleProblem, Taint
from feature_rules.run import expand_pairs, run_rules

FEATURES = Features(
    flags={"cpu.cpuid": frozenset({"ADX"})},
    attributes={"kernel.version": {"major": "6"}},
    instances={"pci.device": ({"vendor": "10de"}, {"vendor": "8086"})},
)
ADX = FeatureMatcher("cpu.cpuid", {"ADX": MatchExpression("Exists")})
NEVER = FeatureMatcher("cpu.nothing")
FAILS = FeatureMatcher("kernel.version", {"major": MatchExpression("nonsense")})


class Template(NamedTuple):
    """A template that is a Python function."""

    expand: Callable[[Mapping[str, Any]], str]


def seen(**expressions: MatchExpression) -> tuple[FeatureMatcher, ...]:
    """Ask what earlier rules made."""
    return (FeatureMatcher("rule.matched", expressions),)


def test_a_matching_rule_gives_what_it_says() -> None:
    """A matching rule gives all its outputs as written."""
    rule = Rule(
        "r", "rule o/r", labels={"a": "@cpu.cpuid"}, annotations={"b": "1"}, vars={"v": "1"}, taints=(Taint("t"),),
        extended_resources={"e": "@pci.device"}, match_features=(ADX,),
    )  # fmt: skip
    assert run_rules([rule], FEATURES).matched == (
        RuleOutput("r", "rule o/r", {"a": "@cpu.cpuid"}, {"v": "1"}, {"b": "1"}, {"e": "@pci.device"}, (Taint("t"),)),
    )


def test_what_does_not_match_gives_nothing() -> None:
    """No output and no problem."""
    assert run_rules([Rule("r", labels={"a": "1"}, match_features=(NEVER,))], FEATURES) == ((), ())


def test_a_failing_rule_is_a_problem_and_does_not_stop_the_others() -> None:
    """A rule that fails has no output; other rules run."""
    outputs = run_rules([Rule("bad", "rule o/bad", labels={"a": "1"}, match_features=(FAILS,)), Rule("good")], FEATURES)
    assert [one.rule for one in outputs.matched] == ["good"]
    assert outputs.problems == (RuleProblem("rule o/bad", "", "there is no operator 'nonsense'"),)


def test_later_rules_see_labels_and_variables_of_earlier_ones() -> None:
    """As attributes; a later rule overwrites, and what did not match is not there."""
    rules = [
        Rule("first", labels={"a": "1", "b": "1"}),
        Rule("second", vars={"b": "2", "c": "3"}),
        Rule("third", labels={"d": "4"}, match_features=(NEVER,)),
        Rule("fourth", match_features=seen(
            a=MatchExpression("In", ("1",)), b=MatchExpression("In", ("2",)), c=MatchExpression("In", ("3",)),
            d=MatchExpression("DoesNotExist"),
        )),
    ]  # fmt: skip
    assert [one.rule for one in run_rules(rules, FEATURES).matched] == ["first", "second", "fourth"]


def test_no_rule_sees_itself_or_later_ones() -> None:
    """A rule can refer to the output of earlier rules only."""
    rules = [
        Rule("r", labels={"a": "1"}, match_features=seen(a=MatchExpression("Exists"))),
        Rule("s", labels={"a": ""}),
    ]
    assert [one.rule for one in run_rules(rules, FEATURES).matched] == ["s"]


def test_what_is_asked_not_to_have_matched_needs_a_rule_before_it() -> None:
    """As upstream: before any rule has run there is no rule.matched to ask; a failed rule does not make one."""
    absent = seen(a=MatchExpression("DoesNotExist"))
    rules = [
        Rule("failing", match_features=(FAILS,)),
        Rule("first", match_features=absent),
        Rule("second", match_features=absent),
    ]
    assert [one.rule for one in run_rules(rules, FEATURES).matched] == ["second"]


def test_back_references_do_not_change_the_features() -> None:
    """A second run starts anew; what the features already say about rules stands."""
    features = FEATURES._replace(attributes={"rule.matched": {"given": "1"}})
    rules = [Rule("r", labels={"a": "1"}), Rule("s", match_features=seen(given=MatchExpression("Exists")))]
    assert run_rules(rules, features) == run_rules(rules, features)
    assert features.attributes == {"rule.matched": {"given": "1"}}
    assert [one.rule for one in run_rules(rules, features).matched] == ["r", "s"]


def test_static_values_overlay_those_of_templates() -> None:
    """A static label or variable wins over one of a template with the same key."""
    rule = Rule(
        "r",
        labels={"a": "static"},
        labels_template=Template(lambda _data: "a=made\nb=made\n"),
        vars={"v": "static"},
        vars_template=Template(lambda _data: "v=made\nw=made"),
        match_features=(ADX,),
    )
    (output,) = run_rules([rule], FEATURES).matched
    assert output.labels == {"a": "static", "b": "made"}
    assert output.vars == {"v": "static", "w": "made"}


def test_a_template_runs_for_every_alternative_that_matches() -> None:
    """Later runs overlay earlier ones, and matchFeatures comes last."""
    gpu, nic = (
        (FeatureMatcher("pci.device", {"vendor": MatchExpression("In", (vendor,))}),) for vendor in ("10de", "8086")
    )
    rule = Rule(
        "r",
        labels_template=Template(lambda data: "\n".join(f"{domain}={features}" for domain, features in data.items())),
        match_any=(gpu, (NEVER,), nic),
        match_features=(ADX,),
    )
    (output,) = run_rules([rule], FEATURES).matched
    assert output.labels == {"pci": "{'device': [{'vendor': '8086'}]}", "cpu": "{'cpuid': [{'Name': 'ADX'}]}"}


def test_a_template_without_conditions_does_not_run() -> None:
    """Without conditions nothing matched, so the template is not expanded, as upstream."""
    (output,) = run_rules([Rule("r", labels_template=Template(lambda _data: "a=1"))], FEATURES).matched
    assert output.labels == {}


NO_PAIR = Template(lambda _data: "no pair")


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        pytest.param(Rule("r", match_features=(ADX,), labels_template=NO_PAIR), "labelsTemplate", id="labels"),
        pytest.param(Rule("r", match_features=(ADX,), vars_template=NO_PAIR), "varsTemplate", id="vars"),
    ],
)
def test_a_template_that_makes_no_pairs_fails_its_rule(rule: Rule, name: str) -> None:
    """The problem names the template."""
    outputs = run_rules([rule], FEATURES)
    assert outputs.matched == ()
    assert [one.message for one in outputs.problems] == [
        f"{name}: made the line 'no pair', which is not of the form key=value"
    ]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("\n \t\n", {}, id="blank lines"),
        pytest.param("  a=1 \r\n\tb=2", {"a": "1", "b": "2"}, id="outer blanks"),
        pytest.param("a=b=c", {"a": "b=c"}, id="first equal sign"),
        pytest.param("a = b", {"a ": " b"}, id="inner blanks stay"),
        pytest.param("a=", {"a": ""}, id="empty value"),
        pytest.param("=a", {"": "a"}, id="empty key"),
        pytest.param("a=1\na=2", {"a": "2"}, id="last wins"),
    ],
)
def test_pairs_of_a_text(text: str, pairs: dict[str, str]) -> None:
    """Each line of a template's output is one key=value pair."""
    assert expand_pairs(text) == pairs


def test_a_line_without_an_equal_sign_is_an_error() -> None:
    """A template line without an equal sign is an error that quotes the line."""
    with pytest.raises(MatchError, match="'oops'"):
        expand_pairs("a=1\noops\n")


@pytest.mark.parametrize(("count", "is_too_many"), [(1000, False), (1001, True), (9000, True)])
def test_a_template_makes_no_more_labels_than_a_node_can_have(count: int, is_too_many: bool) -> None:
    """The rule is left out as a whole, and says so: the API server would refuse all labels of the Node."""
    text = "{{range .local.feature}}{{.Name}}=1\n{{end}}"
    conditions = "matchFeatures: [{feature: local.feature, matchName: {op: InRegexp, value: [x]}}]"
    loaded = load_rules(f"[{{name: r, labelsTemplate: {json.dumps(text)}, {conditions}}}]", "f")
    ran = run_rules(loaded.rules, Features(attributes={"local.feature": {f"x{n}": "1" for n in range(count)}}))
    assert sum(len(output.labels) for output in ran.matched) == (0 if is_too_many else count)
    messages = [problem.message for problem in ran.problems]
    assert messages == (
        [f"labelsTemplate: made {count} pairs, and 1000 is the most: let it match less"] if is_too_many else []
    )
