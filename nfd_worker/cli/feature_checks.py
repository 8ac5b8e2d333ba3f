"""What of a rule's conditions no node can ever meet: features, elements and values that no source makes. Pure.

For ``rules validate``; the table is :mod:`nfd_worker.cli.known_features`. Such a rule is no error on a node, where it
just never matches: that is what makes a misspelt one hard to find.
"""

from collections.abc import Iterable, Iterator

from feature_rules.dynamic import MARK
from feature_rules.errors import MatchError
from feature_rules.expression import match_expression
from feature_rules.model import FeatureMatcher, MatchExpression, Rule, RuleProblem
from kube_api.text import quoted
from nfd_worker.cli.known_features import FREE, KNOWN, Known, Values
from nfd_worker.config.options import nearest

_LONGEST_QUOTE = 60
_ALIKE = 0.7
"""How similar the name of a feature must be to be meant: ``kubernetes.label`` is none of ours."""
_PRESENCE = frozenset({"", "Exists", "DoesNotExist"})
_ONE_OF = frozenset({"In", "NotIn"})
_TRUTH = {"IsTrue": "true", "IsFalse": "false"}
_COMPARISONS = frozenset({"Gt", "Ge", "Lt", "Le", "GtLt", "GeLe"})
_A_NUMBER = "1"

Found = tuple[str, str]
"""The field of a rule, and what is wrong with it."""


def impossible_conditions(rule: Rule) -> Iterator[RuleProblem]:
    """Name each condition that no node meets, or every node, because of a word that no source makes."""
    for path, matcher in _matchers(rule):
        for field, message in _of_matcher(matcher):
            yield RuleProblem(rule.name, f"{path}.{field}", message)


def impossible_reference(reference: str) -> str | None:
    """Return what is wrong with ``@domain.feature.element``; None for one that some node has."""
    domain, _, rest = reference.removeprefix(MARK).partition(".")
    feature, _, element = rest.partition(".")
    name = f"{domain}.{feature}"
    if domain in FREE:
        return None
    known = KNOWN.get(name)
    if known is None:
        return f"can have no value: {_no_feature(name)}"
    values = known.values_of(element)
    if known.kind == "instance" or (known.kind == "flag" and not (values and values.words)):
        return f"can have no value: {name} has no attributes, and only attributes have one"
    problem = _no_element(name, known, element)
    return None if problem is None else f"can have no value: {problem}"


def _matchers(rule: Rule) -> Iterator[tuple[str, FeatureMatcher]]:
    alternatives = enumerate(rule.match_any or ())
    groups = [("matchFeatures", rule.match_features or ())]
    groups += [(f"matchAny[{index}].matchFeatures", matchers) for index, matchers in alternatives]
    for path, matchers in groups:
        yield from ((f"{path}[{index}]", matcher) for index, matcher in enumerate(matchers))


def _of_matcher(matcher: FeatureMatcher) -> Iterator[Found]:
    feature = matcher.feature.lower()
    if feature.partition(".")[0] in FREE:
        return
    known = KNOWN.get(feature)
    if known is None:
        yield "feature", _no_feature(feature)
        return
    for name, expression in (matcher.expressions or {}).items():
        field = f"matchExpressions.{name}"
        values = known.values_of(name)
        if values is None:
            yield field, str(_no_element(feature, known, name))
        else:
            yield from ((field, problem) for problem in _of_expression(feature, known, name, values, expression))
    if matcher.name is not None:
        yield from (("matchName", problem) for problem in _of_names(feature, known, matcher.name))


def _of_expression(feature: str, known: Known, name: str, values: Values, expression: MatchExpression) -> Iterator[str]:
    op = expression.op
    if op in _PRESENCE:
        return
    if known.kind == "flag" and not values.words:
        yield f"{feature} has flags, which have no value: use Exists or DoesNotExist, not {op}"
    elif op in _ONE_OF or op in _TRUTH:
        for text in expression.value or (_TRUTH[op],):
            if not values.can_be(text):
                yield _no_value(f"{feature} never has the {name}", text, values)
    elif op in _COMPARISONS and not expression.type and not values.can_be(_A_NUMBER):
        yield f"{name} of {feature} is never a whole number: it is {values.words}"
    elif op == "InRegexp":
        yield from _of_patterns(feature, name, values, expression.value)


def _of_patterns(feature: str, name: str, values: Values, patterns: Iterable[str]) -> Iterator[str]:
    """Check the patterns that are a whole value, such as ``^0x10de$``; what others match is not known."""
    for pattern in patterns:
        text = pattern.removeprefix("^").removesuffix("$")
        is_whole = pattern.startswith("^") and pattern.endswith("$") and text.replace("_", "").isalnum()
        if is_whole and not values.can_be(text):
            yield _no_value(f"{feature} never has the {name}", text, values)


def _of_names(feature: str, known: Known, expression: MatchExpression) -> Iterator[str]:
    """Check a condition on names: each of ``In``, and whether any name meets it where all names are known."""
    if expression.op in _ONE_OF:
        yield from (str(_no_element(feature, known, name)) for name in expression.value if not known.values_of(name))
    elif known.others is None and not any(_holds(expression, name) for name in known.elements):
        yield f"{feature} never has an element of such a name{_hint('', known.elements)}"


def _holds(expression: MatchExpression, name: str) -> bool:
    try:
        return match_expression(expression, present=True, value=name)
    except MatchError:
        return False


def _no_feature(feature: str) -> str:
    hint = nearest(feature, KNOWN, _ALIKE) or "; nfd-worker scan --features lists what can be matched"
    return f"no source makes the feature {_shown(feature)}{hint}"


def _no_element(feature: str, known: Known, name: str) -> str | None:
    if known.values_of(name) is not None:
        return None
    meant = known.meant(name)
    hint = f"; did you mean {meant}?" if meant and known.values_of(meant) is not None else _hint(name, known.elements)
    return f"{feature} never has the {'flag' if known.kind == 'flag' else 'attribute'} {_shown(name)}{hint}"


def _no_value(what: str, text: str, values: Values) -> str:
    meant = values.meant(text)
    return f"{what} {_shown(text)}: it is {values.words}{f'; did you mean {meant}?' if meant else ''}"


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(known)
    same = next((name for name in names if word and name.lower() == word.lower()), None)
    return f"; did you mean {same}?" if same else nearest(word, names)


def _shown(text: str) -> str:
    return quoted(text, _LONGEST_QUOTE)
