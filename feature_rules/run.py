"""All rules in order over the features: what each matching rule wants, and which rules failed. Pure.

Later rules see the labels and variables of earlier ones as the attributes of the feature ``rule.matched``.
"""

from collections.abc import Sequence
from typing import Any

from feature_rules.errors import FeatureRulesError, MatchError
from feature_rules.features import Features
from feature_rules.match import Match, match_rule
from feature_rules.model import Rule, RuleOutput, RuleOutputs, RuleProblem

BACK_REFERENCE = "rule.matched"
_SHOWN = 80

MAX_PAIRS = 1000
"""Labels, or variables, that the template of one rule may make: the API server refuses a Node with many thousand, and
with them the labels of all other rules."""


def run_rules(rules: Sequence[Rule], features: Features) -> RuleOutputs:
    """Run rules in order; one that fails is a problem, has no output, and does not stop the others."""
    attributes = dict(features.attributes)
    seen = features._replace(attributes=attributes)
    earlier = dict(features.attributes.get(BACK_REFERENCE, {}))
    outputs: list[RuleOutput] = []
    problems: list[RuleProblem] = []
    for rule in rules:
        try:
            output = run_rule(rule, seen)
        except FeatureRulesError as error:
            problems.append(RuleProblem(rule.origin or rule.name, "", str(error)))
            continue
        # From the first rule that could be decided on there is a rule.matched, even an empty one: it is what lets
        # "DoesNotExist" hold for a label that no rule has made.
        attributes[BACK_REFERENCE] = earlier
        if output:
            earlier.update(output.labels)
            earlier.update(output.vars)
            outputs.append(output)
    return RuleOutputs(tuple(outputs), tuple(problems))


def run_rule(rule: Rule, features: Features) -> RuleOutput | None:
    """Run one rule: its output, None when it does not match.

    Raises:
        FeatureRulesError: when a condition cannot be decided or a template cannot be expanded.
    """
    match = match_rule(rule, features)
    if match is None:
        return None
    return RuleOutput(
        rule=rule.name,
        origin=rule.origin,
        labels={**_expanded(rule.labels_template, match, "labelsTemplate"), **rule.labels},
        vars={**_expanded(rule.vars_template, match, "varsTemplate"), **rule.vars},
        annotations=rule.annotations,
        extended_resources=rule.extended_resources,
        taints=rule.taints,
        file=rule.file,
    )


def _expanded(template: Any, match: Match, field: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    if template is not None:
        for data in match.data:
            try:
                pairs |= expand_pairs(template.expand(data))
            except FeatureRulesError as error:
                raise MatchError(f"{field}: {error}") from error
    if len(pairs) > MAX_PAIRS:
        raise MatchError(f"{field}: made {len(pairs)} pairs, and {MAX_PAIRS} is the most: let it match less")
    return pairs


def expand_pairs(text: str) -> dict[str, str]:
    """Split what a template made into pairs: one ``key=value`` a line, blank lines and outer blanks do not count.

    Raises:
        MatchError: for a line without ``=``.
    """
    pairs = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        key, equals, value = line.partition("=")
        if not equals:
            raise MatchError(f"made the line {line[:_SHOWN]!r}, which is not of the form key=value")
        pairs[key] = value
    return pairs
