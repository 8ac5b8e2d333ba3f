"""Which keys of a Node are undecided while a source is not known: those of rules that use its features. Pure.

A source's features begin with its name (``pci.device``). A rule looks at them by its conditions, by conditions on what
an earlier rule made that does (``rule.matched``), or by a dynamic value (``@system.name.nodename``). What every other
rule makes is known, and goes when it is not wanted any more; also by a template, which sees only what its rule matched.

No condition holds on a feature of a source that is not known. ``DoesNotExist`` could hold where a part of a feature is
not known: of ``rule.matched`` what an open rule makes, of ``local`` what an unread feature file has. It does not, so
that nothing new is made of what is unknown. Nor does a condition on the value of what an open rule may change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from feature_rules.dynamic import MARK
from feature_rules.model import FeatureMatcher, Rule, RuleOutput
from feature_rules.run import BACK_REFERENCE
from nfd_worker.labels.node_content import OpenKeys
from nfd_worker.labels.origins import keys_of, recorded_origin

_BACK_REFERENCES = BACK_REFERENCE.partition(".")[0]
_FILES = "local"


class Layer(NamedTuple):
    """Rules that run together, in their order.

    ``lacks_rules``: whether some of them could not be read. ``lacks_files``: whether some feature files could not.
    """

    rules: Sequence[Rule]
    lacks_rules: bool = False
    lacks_files: bool = False


class _Judged(NamedTuple):
    """A rule, what of it can be run (None for nothing), and whether it is undecided."""

    rule: Rule
    runnable: Rule | None
    is_open: bool


def runnable_rules(layer: Layer, unread: Set[str]) -> tuple[Rule, ...]:
    """Give the rules, without the alternatives that guess: see above."""
    return tuple(one.runnable for one in _judged(layer, unread) if one.runnable is not None)


def open_keys(
    layers: Iterable[Layer], outputs: Iterable[RuleOutput], unread: Set[str], *, auto_prefix: bool
) -> OpenKeys:
    """Return by origin, as in the record, which keys may be wanted once the ``unread`` sources are read.

    ``outputs`` is what all rules made of the features that are known. None stands for any key: a template names its
    labels itself.
    """
    undecided = [one.rule for layer in layers for one in _judged(layer, unread) if one.is_open]
    found: dict[str, set[str] | None] = {}
    for rule in undecided:
        _add(found, rule, keys_of(rule, auto_prefix=auto_prefix) if rule.labels_template is None else None)
    domains = unread | {_BACK_REFERENCES} if undecided else unread
    for output in outputs:
        _add(found, output, keys_of(_with_dynamic_values(output, domains), auto_prefix=auto_prefix))
    return {origin: keys if keys is None else tuple(sorted(keys)) for origin, keys in sorted(found.items())}


def _judged(layer: Layer, unread: Set[str]) -> Iterator[_Judged]:
    has_open = has_any_name = layer.lacks_rules
    # What an undecided rule makes is in rule.matched, or is not.
    names: set[str] = set()

    def is_guess(matcher: FeatureMatcher) -> bool:
        """Return whether a condition asks something not to exist that may, or for a value that may be another one."""
        feature = matcher.feature.lower()
        expressions = matcher.expressions or {}
        absent = {name for name, one in expressions.items() if one.op == "DoesNotExist"}
        if feature == BACK_REFERENCE:
            valued = {name for name, one in expressions.items() if one.op not in ("", "Exists")}
            return bool(valued & names or (absent and has_any_name))
        return layer.lacks_files and feature.partition(".")[0] == _FILES and bool(absent)

    for rule in layer.rules:
        features = {matcher.feature.lower() for matchers in _matchers(rule) for matcher in matchers}
        domains = {feature.partition(".")[0] for feature in features}
        runnable = _without(rule, is_guess)
        is_open = runnable is not rule or not unread.isdisjoint(domains) or (has_open and BACK_REFERENCE in features)
        yield _Judged(rule, runnable, is_open)
        has_open |= is_open
        if is_open or (layer.lacks_files and _FILES in domains):
            has_any_name |= rule.labels_template is not None or rule.vars_template is not None
            names.update(rule.labels, rule.vars)


def _without(rule: Rule, is_guess: Callable[[FeatureMatcher], bool]) -> Rule | None:
    """Leave out the alternatives that guess; gives None where no way to match is left."""
    if any(map(is_guess, rule.match_features or ())):
        return None
    alternatives = rule.match_any or ()
    left = tuple(matchers for matchers in alternatives if not any(map(is_guess, matchers)))
    if len(left) == len(alternatives):
        return rule
    return rule._replace(match_any=left) if left else None


def _matchers(rule: Rule) -> Iterable[Iterable[FeatureMatcher]]:
    return (rule.match_features or (), *(rule.match_any or ()))


def _with_dynamic_values(output: RuleOutput, domains: Set[str]) -> RuleOutput:
    """Leave of an output what gets its value from a feature of one of the domains."""

    def of_domains(values: Mapping[str, str]) -> Mapping[str, str]:
        return {
            name: value
            for name, value in values.items()
            if value.startswith(MARK) and value[len(MARK) :].partition(".")[0] in domains
        }

    return RuleOutput(
        output.rule,
        output.origin,
        labels=of_domains(output.labels),
        extended_resources=of_domains(output.extended_resources),
        file=output.file,
    )


def _add(found: dict[str, set[str] | None], made: Rule | RuleOutput, keys: set[str] | None) -> None:
    before = found.get(recorded_origin(made), set())
    if keys is None or before is None:
        found[recorded_origin(made)] = None
    elif keys:
        found[recorded_origin(made)] = before | keys
