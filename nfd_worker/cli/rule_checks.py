"""What is wrong with a rule, whatever node it meets: keys, values and namespaces of its outputs, its conditions. Pure.

For ``rules validate``. On a node the same is found out by :mod:`nfd_worker.labels.labels`, and the output left out.
"""

from collections.abc import Iterable, Iterator, Mapping

import yaml

from feature_rules.dynamic import MARK
from feature_rules.features import Features
from feature_rules.keys.namespaces import NamespaceOptions
from feature_rules.model import Rule, RuleOutput, RuleOutputs, RuleProblem
from feature_rules.yaml_nodes import compose, excess
from kube_api.names import FEATURE_LABEL_PREFIX
from kube_api.text import quoted
from nfd_worker.cli.feature_checks import impossible_conditions, impossible_reference
from nfd_worker.labels.labels import CLUSTER, make_content
from nfd_worker.labels.node_content import Refusal

_FIELDS: Mapping[str, str] = {
    "label": "labels",
    "annotation": "annotations",
    "extended resource": "extendedResources",
    "taint": "taints",
}
"""Kind of a refusal -> the field of a rule that it is about."""

_SOME_VALUE = "1"
"""Stands for a value that only a node knows; labels and resources may both have it."""

_NAMED_PARTS = 3
_LONGEST_KEY = 120
_NO_REFERENCE = "names no element of a feature: write @<domain>.<feature>.<element>"

_Place = tuple[str, str]
"""The name of a rule, and a field with its key: ``labels.example.com/fpga``."""


def static_problems(rules: Iterable[Rule], text: str, file: str, options: NamespaceOptions) -> list[RuleProblem]:
    """Check what rules want, as if they all matched; ``text`` is that of their file, for the lines."""
    lines = dict(reversed(list(_places(text))))
    return [
        problem._replace(
            rule=rule.origin,
            field=_shown(problem.field),
            file=file,
            line=lines.get((rule.name, problem.field), lines.get((rule.name, "name"), 0)),
        )
        for rule in rules
        for problem in (*_bad_references(rule), *_bad_outputs(rule, options), *impossible_conditions(rule))
    ]


def _shown(field: str) -> str:
    """Show a field with the blank or the control character that can be what is wrong with its key."""
    head, dot, key = field.partition(".")
    return f"{head}{dot}{quoted(key, _LONGEST_KEY)}" if dot else field


def as_problem(refusal: Refusal, output: RuleOutput) -> RuleProblem:
    """Return of a refusal which field of its rule it is about, with the key as it is written there."""
    wanted: Mapping[str, Iterable[str]] = {
        "label": output.labels,
        "annotation": output.annotations,
        "extended resource": output.extended_resources,
        "taint": [taint.key for taint in output.taints],
    }
    short = refusal.key.removeprefix(f"{FEATURE_LABEL_PREFIX}/")
    key = refusal.key if refusal.key in wanted[refusal.kind] else short
    return RuleProblem(output.rule, f"{_FIELDS[refusal.kind]}.{key}", f"{refusal.value!r}: {refusal.message}")


def _bad_references(rule: Rule) -> Iterator[RuleProblem]:
    for field, wanted in (("labels", rule.labels), ("extendedResources", rule.extended_resources)):
        for key, value in wanted.items():
            if value.startswith(MARK):
                problem = impossible_reference(value) if _names_an_element(value) else _NO_REFERENCE
                if problem is not None:
                    yield RuleProblem(rule.name, f"{field}.{key}", f"{value!r} {problem}")


def _bad_outputs(rule: Rule, options: NamespaceOptions) -> Iterator[RuleProblem]:
    output = RuleOutput(
        rule=rule.name, origin=rule.origin, labels=_at_some_node(rule.labels), annotations=rule.annotations,
        extended_resources=_at_some_node(rule.extended_resources), taints=rule.taints,
    )  # fmt: skip
    ran = {CLUSTER: RuleOutputs((output,))}
    made = make_content({}, ran, Features(), options._replace(enable_taints=True))
    yield from (as_problem(refusal, output) for refusal in made.refusals)


def _names_an_element(value: str) -> bool:
    parts = value[len(MARK) :].split(".", _NAMED_PARTS - 1)
    return len(parts) == _NAMED_PARTS and all(parts)


def _at_some_node(wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: _SOME_VALUE if value.startswith(MARK) else value for key, value in wanted.items()}


def _places(text: str) -> Iterator[tuple[_Place, int]]:
    """Find the line of each output of each rule, in the order of the text."""
    for node in compose(text).documents:
        if excess(node) is None:
            yield from _places_below(node)


def _places_below(node: yaml.Node) -> Iterator[tuple[_Place, int]]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _places_below(item)
    elif isinstance(node, yaml.MappingNode):
        fields = {str(key.value): value for key, value in node.value}
        name = str(fields["name"].value) if "name" in fields else ""
        for field, value in fields.items():
            if field in ("items", "spec", "rules"):
                yield from _places_below(value)
            elif field == "name":
                yield (name, field), value.start_mark.line + 1
            elif field in ("matchFeatures", "matchAny"):
                yield from (((name, path), line) for path, line in _condition_places(value, field))
            elif field in _FIELDS.values():
                yield from (((name, f"{field}.{key.value}"), key.start_mark.line + 1) for key in _keys(value))


def _condition_places(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    """Find the line of each field below ``matchFeatures`` and ``matchAny``."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _condition_places(item, f"{path}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = f"{path}.{key.value}"
            yield place, key.start_mark.line + 1
            if key.value in ("matchFeatures", "matchExpressions"):
                yield from _condition_places(value, place)


def _keys(node: yaml.Node) -> list[yaml.Node]:
    """Give the keys of a mapping, or of a list of taints."""
    if isinstance(node, yaml.MappingNode):
        return [key for key, _ in node.value]
    taints = [item for item in node.value if isinstance(item, yaml.MappingNode)]
    return [value for taint in taints for key, value in taint.value if key.value == "key"]
