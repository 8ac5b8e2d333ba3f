"""One discovery cycle as numbered steps: read the host, run the rules, say what the Node should carry.

Pure but for the reads: the same host, settings, rules and last good features give the same report.
"""

import time
from collections.abc import Callable, Mapping, Set
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from feature_rules.features import NO_FEATURES, Failed, Features, merge
from feature_rules.model import Rule, RuleOutputs, RuleProblem
from feature_rules.run import BACK_REFERENCE, run_rules
from kube_api.names import BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION
from nfd_worker.config.built_in_rules import BUILT_IN_RULES
from nfd_worker.config.config import Settings
from nfd_worker.config.rule_files import CUSTOM_ORIGIN, RuleSet
from nfd_worker.errors import HostReadError
from nfd_worker.host import BOOT_ID, OS_RELEASE, Host
from nfd_worker.labels.labels import CLUSTER, CUSTOM, make_content
from nfd_worker.labels.node_content import NodeContent, OpenKeys, Origins, Refusal, Unknown
from nfd_worker.labels.open_keys import Layer, open_keys, runnable_rules
from nfd_worker.labels.origins import origins_of
from nfd_worker.sources import SOURCES, discover, local

Outcome = Features | Failed | None
"""What reading a source came to; None when it is not known yet."""

_ANNOTATED = {BOOT_ID_ANNOTATION: BOOT_ID, KERNEL_VERSION_ANNOTATION: OS_RELEASE}
_NO_RULES = RuleSet()
_NOTHING: Mapping[str, Outcome] = MappingProxyType({})


class CycleReport(NamedTuple):
    """What one cycle found.

    ``content``: what the Node should carry.
    ``features``: of all sources, merged.
    ``failed``: source -> why it could not be read.
    ``unknown``: what was never read since the start; None when every source and file was.
    ``origins``: which rule and which file wants which keys of the content.
    ``refusals``: what was left out of the content. ``problems``: what is wrong with rules, from loading and running.
    ``matched``: the names of the rules that matched, in the order in which they ran.
    ``last_good``: source -> features of its last good read; goes into the next cycle.
    ``seconds``: how long the cycle took; ``source_seconds``: source -> how long reading it took, in this process.
    """

    content: NodeContent
    features: Features
    failed: Mapping[str, str]
    unknown: Unknown | None
    origins: Origins
    refusals: tuple[Refusal, ...]
    problems: tuple[RuleProblem, ...]
    matched: tuple[str, ...]
    last_good: Mapping[str, Features]
    seconds: float
    source_seconds: Mapping[str, float]


def run_cycle(
    host: Host,
    settings: Settings,
    last_good: Mapping[str, Features],
    rules: RuleSet = _NO_RULES,
    scanned: Mapping[str, Outcome] = _NOTHING,
    *,
    hold: Callable[[str, Features], Features] = lambda _source, found: found,
) -> CycleReport:
    """Run one cycle; ``scanned`` are the outcomes of sources that a child reads, which are not read here.

    ``hold``: adds to what a source found what may be missing for a moment alone.
    """
    start = time.perf_counter()
    # 1. Read every source.
    outcomes, source_seconds = _read_sources(host, settings, scanned)
    failed = {name: outcome.reason for name, outcome in outcomes.items() if isinstance(outcome, Failed)}
    # 2. A failed read is not an absent feature: the last good one stands in for it. What is gone may come back.
    found = {name: hold(name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, Features)}
    known = {name: {**last_good, **found}[name] for name in outcomes if name in found or name in last_good}
    features = merge(known.values())
    unread = outcomes.keys() - known.keys()
    files = {
        file: None if content is None else frozenset(content.labels)
        for one in known.values()
        for file, content in one.files.items()
        if content is None or content.features or content.labels
    }
    # 3. Let each source say which of it is worth a label.
    source_labels = {
        name: source.labels(known.get(name, NO_FEATURES), settings.sources)
        for name, source in SOURCES.items()
        if name in settings.label_sources and (name in known or not source.labels_need_features)
    }
    # 4. Run the rules over all features, as far as these are known: the node's own, then the cluster's.
    layers = _layers(settings, rules, lacks_files=None in files.values())
    outputs = {name: run_rules(runnable_rules(layer, unread), features) for name, layer in layers.items()}
    # 5. Name and check what they want.
    named = with_back_references(features, outputs[CLUSTER])
    content, refusals = make_content(source_labels, outputs, named, settings.namespaces, _annotations(host))
    # 6. Report.
    made = tuple(chain.from_iterable(ran.matched for ran in outputs.values()))
    opened = partial(open_keys, tuple(layers.values()), made, auto_prefix=settings.namespaces.auto_prefix)
    return CycleReport(
        content=content,
        features=features,
        failed=failed,
        unknown=_unknown(settings, unread, files, rules, opened),
        origins=origins_of(content, made, files, auto_prefix=settings.namespaces.auto_prefix),
        refusals=refusals,
        problems=(*settings.rule_problems, *rules.problems, *_problems(outputs)),
        matched=tuple(output.rule for ran in outputs.values() for output in ran.matched),
        last_good={**last_good, **found},
        seconds=time.perf_counter() - start,
        source_seconds=source_seconds,
    )


def with_back_references(features: Features, ran: RuleOutputs) -> Features:
    """Add what the cluster's rules made, so that a dynamic value can name it: ``@rule.matched.<label or variable>``."""
    made = {name: value for output in ran.matched for name, value in {**output.labels, **output.vars}.items()}
    return features._replace(attributes={**features.attributes, BACK_REFERENCE: made})


def _read_sources(
    host: Host, settings: Settings, scanned: Mapping[str, Outcome]
) -> tuple[Mapping[str, Outcome], Mapping[str, float]]:
    outcomes: dict[str, Outcome] = {}
    seconds: dict[str, float] = {}
    for name in settings.feature_sources:
        if name in scanned:
            outcomes[name] = scanned[name]
            continue
        start = time.perf_counter()
        outcomes[name] = discover(name, host, settings.sources)
        seconds[name] = time.perf_counter() - start
    return outcomes, seconds


def _custom_rules(settings: Settings, rules: RuleSet) -> tuple[Rule, ...]:
    """Put the node's own rules in their order; they are a label source and can be switched off as one."""
    return (*BUILT_IN_RULES, *settings.custom_rules, *rules.custom) if CUSTOM in settings.label_sources else ()


def _layers(settings: Settings, rules: RuleSet, *, lacks_files: bool) -> dict[str, Layer]:
    of_custom = {origin.startswith(CUSTOM_ORIGIN) for origin in rules.unknown}
    return {
        CUSTOM: Layer(_custom_rules(settings, rules), lacks_rules=True in of_custom, lacks_files=lacks_files),
        CLUSTER: Layer(rules.cluster, lacks_rules=False in of_custom, lacks_files=lacks_files),
    }


def _unknown(
    settings: Settings,
    unread: Set[str],
    files: Mapping[str, Set[str] | None],
    rules: RuleSet,
    opened: Callable[[Set[str]], OpenKeys],
) -> Unknown | None:
    """Return what is unknown: sources and files that were never read, and what rules may make of their features.

    A source that makes no labels is known to make none, whether it can be read or not.
    """
    has_custom = CUSTOM in settings.label_sources
    origins = {origin for origin in rules.unknown if has_custom or not origin.startswith(CUSTOM_ORIGIN)}
    unread_files = {file for file, labels in files.items() if labels is None}
    origins |= unread_files
    origins |= {local.ORIGIN} if "local" in unread else set()
    if not unread and not origins:
        return None
    silent = unread - set(settings.label_sources)
    return Unknown(
        prefixes=_prefixes(unread - silent),
        origins=tuple(sorted(origins)),
        rules=opened(unread),
        file_rules=opened({"local"} if unread_files else set()),
        known_prefixes=_prefixes(SOURCES.keys() - (unread - silent)),
    )


def _prefixes(sources: Set[str]) -> tuple[str, ...]:
    return tuple(prefix for name, source in SOURCES.items() if name in sources for prefix in source.prefixes)


def _problems(outputs: Mapping[str, RuleOutputs]) -> tuple[RuleProblem, ...]:
    return tuple(problem for ran in outputs.values() for problem in ran.problems)


def _annotations(host: Host) -> dict[str, str]:
    """Return which boot and which exact kernel release the labels describe; what cannot be read is left out."""
    found = {key: _find(host, path) for key, path in _ANNOTATED.items()}
    return {key: value for key, value in found.items() if value}


def _find(host: Host, path: str) -> str:
    try:
        return (host.find(path) or "").strip()
    except HostReadError:
        return ""
