"""From what sources and rules want to one valid NodeContent, and what was left out. Pure; runs in every cycle.

Who wins, from weak to strong, as in Node Feature Discovery: sources in their order, custom rules, feature files (source
``local``), then the cluster's rules. Annotations, extended resources and taints come from the cluster's rules only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from feature_rules.dynamic import resolve
from feature_rules.features import Features
from feature_rules.keys import namespaces
from feature_rules.keys.namespaces import NamespaceOptions, Problem, add_prefixes, is_whitelisted
from feature_rules.model import RuleOutput, RuleOutputs, Taint
from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.labels.node_content import NodeContent, Refusal

CUSTOM = "custom"
"""The name of the rules in the worker's own configuration."""

CLUSTER = "cluster"
"""The name of all other rules: NodeFeatureRule objects and rule files."""

UNPREFIXED_SOURCES = frozenset({CUSTOM, "local"})
"""Sources whose label names do not begin with the source's name."""

_NONE: Mapping[str, str] = MappingProxyType({})


class ContentResult(NamedTuple):
    """What the Node should carry, and what was left out, both sorted."""

    content: NodeContent
    refusals: tuple[Refusal, ...]


def source_prefix(source: str) -> str:
    """Give the beginning of a source's label keys; those of :data:`UNPREFIXED_SOURCES` have none of their own."""
    return f"{FEATURE_LABEL_PREFIX}/{source}-"


def label_key(source: str, name: str) -> str:
    """Make the full key of a source's label; a name with a namespace is one already."""
    if "/" in name:
        return name
    return f"{FEATURE_LABEL_PREFIX}/{name}" if source in UNPREFIXED_SOURCES else source_prefix(source) + name


def make_content(
    source_labels: Mapping[str, Mapping[str, str]],
    rule_outputs: Mapping[str, RuleOutputs],
    features: Features,
    options: NamespaceOptions,
    annotations: Mapping[str, str] = _NONE,
) -> ContentResult:
    """Name, check, merge and sort everything.

    ``source_labels``: source -> label names as the source gives them -> values, in the order of the sources.
    ``rule_outputs``: what the rules named :data:`CUSTOM` and :data:`CLUSTER` want; a missing one wants nothing.
    ``features``: where dynamic values are looked up.
    ``annotations``: the worker's own, which are neither checked nor overwritten.
    """
    custom, cluster = (rule_outputs.get(name, RuleOutputs()).matched for name in (CUSTOM, CLUSTER))
    resolver = _Resolver(features, options)
    content = NodeContent(
        labels=resolver.labels(source_labels, custom, cluster),
        annotations=dict(sorted({**resolver.annotations(cluster), **annotations}.items())),
        extended_resources=resolver.extended_resources(cluster),
        taints=resolver.taints(cluster),
    )
    return ContentResult(content, tuple(sorted(set(resolver.refusals))))


class _Candidate(NamedTuple):
    """A value, and the origin that wants it."""

    value: str
    origin: str


_Candidates = dict[str, _Candidate]


class _Resolver:
    """Resolves one NodeContent: what all its steps need, and the refusals they leave."""

    def __init__(self, features: Features, options: NamespaceOptions) -> None:
        self.refusals: list[Refusal] = []
        self._features = features
        self._options = options

    def labels(
        self,
        source_labels: Mapping[str, Mapping[str, str]],
        custom: Iterable[RuleOutput],
        cluster: Iterable[RuleOutput],
    ) -> dict[str, str]:
        if self._options.disable_labels:
            return {}
        candidates: _Candidates = {}
        for layer in _source_layers(source_labels, custom):
            candidates |= self._screened(layer)
        if self._options.auto_prefix:
            candidates = add_prefixes(candidates)
        candidates |= self._candidates((output.origin, output.labels) for output in cluster)
        accepted = self._accept("label", self._resolve("label", candidates), self._check_label)
        whitelist = self._options.label_whitelist
        return {key: value for key, value in accepted.items() if is_whitelisted(key, whitelist)}

    def annotations(self, cluster: Iterable[RuleOutput]) -> Mapping[str, str]:
        if self._options.disable_annotations:
            return _NONE
        candidates = self._candidates((output.origin, output.annotations) for output in cluster)
        return self._accept("annotation", candidates, namespaces.check_annotation)

    def extended_resources(self, cluster: Iterable[RuleOutput]) -> dict[str, str]:
        if self._options.disable_extended_resources:
            return {}
        kind = "extended resource"
        candidates = self._candidates((output.origin, output.extended_resources) for output in cluster)
        return self._accept(kind, self._resolve(kind, candidates), namespaces.check_extended_resource)

    def taints(self, cluster: Iterable[RuleOutput]) -> tuple[Taint, ...]:
        wanted = [(taint, output.origin) for output in cluster for taint in output.taints]
        if wanted and not self._options.enable_taints:
            message = "taints are off: set enableTaints: true in the configuration file, or --enable-taints"
            self._refuse_taint(*wanted[0], Problem("not-enabled", message))
            return ()
        accepted: dict[tuple[str, str], Taint] = {}
        for taint, origin in wanted:
            problem = namespaces.check_taint(taint)
            if problem is None:
                accepted[taint.key, taint.effect] = taint
            else:
                self._refuse_taint(taint, origin, problem)
        return tuple(accepted[key] for key in sorted(accepted))

    def _screened(self, layer: _Candidates) -> _Candidates:
        """Do what upstream's worker does before it hands labels on: a bad one must not hide a good one."""
        resolved = self._resolve("label", layer)
        accepted = self._accept("label", resolved, namespaces.check_label_syntax)
        whitelist = self._options.source_label_whitelist
        return {key: resolved[key] for key in accepted if is_whitelisted(key, whitelist)}

    def _candidates(self, wanted: Iterable[tuple[str, Mapping[str, str]]]) -> _Candidates:
        """Merge what rules want; prefixes come first, so that a later rule overwrites either spelling of a key."""
        candidates: _Candidates = {}
        for origin, values in wanted:
            named = add_prefixes(values) if self._options.auto_prefix else values
            candidates |= {key: _Candidate(value, origin) for key, value in named.items()}
        return candidates

    def _resolve(self, kind: str, candidates: _Candidates) -> _Candidates:
        resolved: _Candidates = {}
        for key, candidate in candidates.items():
            value = resolve(candidate.value, self._features)
            if value is None:
                message = "there is no such attribute on this node; it is written @<domain>.<feature>.<element>"
                self.refusals.append(Refusal(candidate.origin, kind, key, candidate.value, "no-such-feature", message))
            else:
                resolved[key] = candidate if value is candidate.value else _Candidate(value, candidate.origin)
        return resolved

    def _accept(
        self, kind: str, candidates: _Candidates, check: Callable[[str, str], Problem | None]
    ) -> dict[str, str]:
        """Sort, and keep what is valid; the rest becomes refusals."""
        accepted: dict[str, str] = {}
        for key, (value, origin) in sorted(candidates.items()):
            problem = check(key, value)
            if problem is None:
                accepted[key] = value
            else:
                self.refusals.append(Refusal(origin, kind, key, value, *problem))
        return accepted

    def _check_label(self, key: str, value: str) -> Problem | None:
        return namespaces.check_label(key, value, self._options)

    def _refuse_taint(self, taint: Taint, origin: str, problem: Problem) -> None:
        self.refusals.append(Refusal(origin, "taint", taint.key, f"{taint.value}:{taint.effect}", *problem))


def _source_layers(
    source_labels: Mapping[str, Mapping[str, str]], custom: Iterable[RuleOutput]
) -> Iterator[_Candidates]:
    """Give what each source and custom rule wants, from weak to strong."""
    for source, labels in source_labels.items():
        if source not in UNPREFIXED_SOURCES:
            yield {label_key(source, name): _Candidate(value, f"source {source}") for name, value in labels.items()}
    for output in custom:
        yield {name: _Candidate(value, output.origin) for name, value in output.labels.items()}
    yield {name: _Candidate(value, "source local") for name, value in source_labels.get("local", _NONE).items()}
