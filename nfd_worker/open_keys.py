"""Which keys of a Node nobody can decide on while a source is not known: of rules that look at its features. Pure.

A source's features begin with its name (``pci.device``). A rule looks at them by its conditions, by conditions on what
an earlier rule made that does (``rule.matched``), or by a dynamic value (``@system.name.nodename``). What every other
rule makes is known, and goes when it is not wanted any more; also by a template, which sees only what its rule matched.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from nfd_worker.dynamic import MARK
from nfd_worker.node_content import OpenKeys
from nfd_worker.origins import keys_of, recorded_origin
from nfd_worker.rules.model import FeatureMatcher, Rule, RuleOutput
from nfd_worker.rules.run import BACK_REFERENCE

_BACK_REFERENCES = BACK_REFERENCE.partition(".")[0]


def open_keys(
    layers: Iterable[tuple[Sequence[Rule], bool]], outputs: Iterable[RuleOutput], unread: Set[str], *, auto_prefix: bool
) -> OpenKeys:
    """Say by origin, as in the record of what made what, which keys may be wanted once the ``unread`` sources are read.

    ``layers`` are the rules that run together, each in their order, and whether some of them could not be read;
    ``outputs`` is what all of them made of the features that are known. None stands for any key: a template names its
    labels itself.
    """
    undecided = [rule for rules, lacks_some in layers for rule in _undecided(rules, unread, lacks_some=lacks_some)]
    found: dict[str, set[str] | None] = {}
    for rule in undecided:
        _add(found, rule, keys_of(rule, auto_prefix=auto_prefix) if rule.labels_template is None else None)
    domains = unread | {_BACK_REFERENCES} if undecided else unread
    for output in outputs:
        _add(found, output, keys_of(_with_dynamic_values(output, domains), auto_prefix=auto_prefix))
    return {origin: keys if keys is None else tuple(sorted(keys)) for origin, keys in sorted(found.items())}


def _undecided(rules: Iterable[Rule], unread: Set[str], *, lacks_some: bool) -> list[Rule]:
    """Give the rules whose conditions nobody can decide on."""
    found: list[Rule] = []
    for rule in rules:
        features = {matcher.feature.lower() for matchers in _matchers(rule) for matcher in matchers}
        domains = {feature.partition(".")[0] for feature in features}
        if not unread.isdisjoint(domains) or ((found or lacks_some) and BACK_REFERENCE in features):
            found.append(rule)
    return found


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
