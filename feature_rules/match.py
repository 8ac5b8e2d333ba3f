"""Does a rule match the features, and with which elements? Pure; :mod:`feature_rules.run` makes outputs of it.

A feature can be of several kinds at once. Its flags and attributes are one set of names; its instances are asked one
by one, and it is enough when either side matches.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from feature_rules.expression import match_expression
from feature_rules.features import Attributes, Features, Flags, Instances
from feature_rules.model import FeatureMatcher, MatchExpression, Rule

Element = Mapping[str, str]
"""What matched, as templates see it: ``{Name}`` of a flag, ``{Name, Value}`` of an attribute, an instance as it is."""

Data = Mapping[str, Mapping[str, list[Element]]]
"""Domain -> feature -> elements: ``{"pci": {"device": [...]}}``, the root of a template's data."""


class Elements(NamedTuple):
    """All that is known under one feature name; None for a kind that the feature does not have."""

    flags: Flags | None = None
    attributes: Attributes | None = None
    instances: Instances | None = None


class Match(NamedTuple):
    """A rule matches. ``data``: one for each run of its templates, in the order in which the results overlay."""

    data: tuple[Data, ...] = ()


def is_feature_name(name: str) -> bool:
    """Return whether a name has a domain and a feature, such as ``pci.device``."""
    domain, _, feature = name.partition(".")
    return bool(domain and feature)


def match_rule(rule: Rule, features: Features) -> Match | None:
    """Match a rule: one of ``match_any`` and all of ``match_features``, as far as they are given; None for no match.

    Raises:
        MatchError: when a condition cannot be decided; then the rule has no output at all.
    """
    data: list[Data] = []
    if rule.match_any:
        # Templates run for every alternative that matches; without one the first alternative is answer enough.
        with_templates = rule.labels_template is not None or rule.vars_template is not None
        for alternative in rule.match_any:
            found = match_features(alternative, features)
            if found is not None:
                data.append(found)
                if not with_templates:
                    break
        if not data:
            return None
    if rule.match_features:
        found = match_features(rule.match_features, features)
        if found is None:
            return None
        data.append(found)
    return Match(tuple(data))


def match_features(matchers: Iterable[FeatureMatcher], features: Features) -> Data | None:
    """Match all matchers; None when one does not match.

    The feature is looked up in lower case, and its elements stand in the data under the name as the rule writes it.

    Raises:
        MatchError: as :func:`match_rule`.
    """
    data: dict[str, dict[str, list[Element]]] = {}
    for matcher in matchers:
        elements = match_feature(matcher, features)
        if elements is None:
            return None
        domain, _, feature = matcher.feature.partition(".")
        data.setdefault(domain, {}).setdefault(feature, []).extend(elements)
    return data


def match_feature(matcher: FeatureMatcher, features: Features) -> list[Element] | None:
    """Match one matcher and give what matched: by its expressions, then by its condition on names.

    Raises:
        MatchError: as :func:`match_rule`.
    """
    name = matcher.feature.lower()
    found = Elements(features.flags.get(name), features.attributes.get(name), features.instances.get(name))
    if found == (None, None, None):
        return None
    elements: list[Element] = []
    if matcher.expressions is not None:
        by_expressions = match_expressions(matcher.expressions, found)
        if by_expressions is None:
            return None
        elements += by_expressions
    if matcher.name is not None:
        by_name = match_name(matcher.name, found)
        if by_name is None:
            return None
        elements += by_name
    return elements


def match_expressions(expressions: Mapping[str, MatchExpression], found: Elements) -> list[Element] | None:
    """Match a set of expressions: all must hold for the names, or all for one instance; None when neither is so.

    Without any expression a set matches where there are flags, attributes (even none of them) or an instance.

    Raises:
        MatchError: as :func:`match_rule`.
    """
    named = _match_named(expressions, found)
    conditions = tuple(expressions.items())
    instances = [one for one in found.instances or () if _holds(conditions, one)]
    return None if named is None and not instances else (named or []) + instances


def _match_named(expressions: Mapping[str, MatchExpression], found: Elements) -> list[Element] | None:
    if found.flags is None and found.attributes is None:
        return None
    elements: list[Element] = []
    for name, expression in expressions.items():
        matched = _match_one_name(name, expression, found)
        if not matched:
            return None
        elements += matched
    return _by_name(elements)


def _match_one_name(name: str, expression: MatchExpression, found: Elements) -> list[Element]:
    """Ask flags and attributes for one name; either is enough, but what shall not exist must be missing from both."""
    answers: list[tuple[bool, Element]] = []
    if found.flags is not None:
        matched = match_expression(expression, present=name in found.flags, value=None)
        answers.append((matched, {"Name": name}))
    if found.attributes is not None:
        value = found.attributes.get(name)
        matched = match_expression(expression, present=value is not None, value=value)
        answers.append((matched, {"Name": name, "Value": value or ""}))
    enough = all if expression.op == "DoesNotExist" else any
    return [element for matched, element in answers if matched] if enough(matched for matched, _ in answers) else []


def _holds(conditions: tuple[tuple[str, MatchExpression], ...], instance: Attributes) -> bool:
    for name, expression in conditions:
        if not match_expression(expression, present=name in instance, value=instance.get(name)):
            return False
    return True


def match_name(expression: MatchExpression, found: Elements) -> list[Element] | None:
    """Match a condition on names: an element matches when the condition holds for its name taken as a value.

    An instance matches by the name of any of its attributes. None when nothing matches.

    Raises:
        MatchError: as :func:`match_rule`.
    """
    matched: list[Element] = [{"Name": name} for name in sorted(found.flags or ()) if _is_name(expression, name)]
    for name, value in (found.attributes or {}).items():
        if _is_name(expression, name):
            matched.append({"Name": name, "Value": value})
    instances = [one for one in found.instances or () if _has_name(expression, one)]
    return (_by_name(matched) + instances) or None


def _has_name(expression: MatchExpression, instance: Attributes) -> bool:
    # Every name is asked, so that what is an error does not hang on the order of the attributes.
    return True in [_is_name(expression, name) for name in instance]


def _is_name(expression: MatchExpression, name: str) -> bool:
    return match_expression(expression, present=True, value=name)


def _by_name(elements: list[Element]) -> list[Element]:
    return sorted(elements, key=lambda element: element["Name"])
