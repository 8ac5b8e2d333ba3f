"""What made what: which file or rule wants which keys of a Node. Pure; from a cycle's values to its report.

The record goes with the labels onto the Node (:mod:`nfd_worker.publish.ownership`), so that it is as old as they are
and outlives the worker: a file that has gone bad keeps what it made, and nothing else. Labels of sources are not in it,
since their keys begin with the source's name.
"""

from collections.abc import Collection, Iterable, Mapping

from feature_rules.model import Rule, RuleOutput
from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.labels.node_content import NodeContent, Origins


def origins_of(
    content: NodeContent,
    outputs: Iterable[RuleOutput],
    files: Mapping[str, Collection[str] | None],
    *,
    auto_prefix: bool,
) -> Origins:
    """Return for each rule (by its file, if it has one) and each feature file which keys of the content it wants.

    A feature file that wants none is named, too: rules may make something of its features.
    """
    carried = {*content.labels, *content.annotations, *content.extended_resources, *(t.key for t in content.taints)}
    made: dict[str, set[str]] = {}
    for output in outputs:
        keys = keys_of(output, auto_prefix=auto_prefix) & carried
        if keys:
            made.setdefault(recorded_origin(output), set()).update(keys)
    for file, labels in files.items():
        if labels is not None:
            made[file] = {_full(name, auto_prefix=auto_prefix) for name in labels} & carried
    return {origin: tuple(sorted(keys)) for origin, keys in sorted(made.items())}


def recorded_origin(rule: Rule | RuleOutput) -> str:
    """Return what a rule is called in the record: its file, which can go bad as a whole, or else its own name."""
    return rule.file or rule.origin


def keys_of(made: Rule | RuleOutput, *, auto_prefix: bool) -> set[str]:
    """Give the keys that a rule or its output names; those of a rule's template are not among them."""
    names = (*made.labels, *made.annotations, *made.extended_resources, *(taint.key for taint in made.taints))
    return {_full(name, auto_prefix=auto_prefix) for name in names}


def _full(name: str, *, auto_prefix: bool) -> str:
    return name if "/" in name or not auto_prefix else f"{FEATURE_LABEL_PREFIX}/{name}"
