"""Rules from YAML: from NodeFeatureRule objects, and from the lists of ``custom.d`` and ``sources.custom``.

What is certainly wrong with a rule, whatever the features are, is a problem here and not on the node; that rule is
left out and the others stand. Nothing here raises.

Formats: https://kubernetes-sigs.github.io/node-feature-discovery/ (NodeFeatureRule, custom rules).
"""

import yaml

from feature_rules.model import LoadedRules, Rule, RuleProblem
from feature_rules.read_rule import Dialect, RuleReader
from feature_rules.yaml_nodes import MAX_PROBLEMS, compose, excess, is_null, joined

API_VERSION = "nfd.k8s-sigs.io/v1alpha1"
KIND = "NodeFeatureRule"

_LISTS = ("List", "NodeFeatureRuleList")
_OBJECT_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_LIST_FIELDS = ("apiVersion", "kind", "metadata", "items")


def load_rules(text: str, file: str, dialect: Dialect = "rule") -> LoadedRules:
    """Load the rules of a text; ``file`` is for origins and messages.

    ``dialect`` is ``rule`` for documents that are NodeFeatureRule objects, lists of them or bare lists of rules, and
    ``custom`` for one bare list in the older form, with conditions such as ``vendor: "10de"`` or ``[X, "Y=m"]``.
    A text of more than 1 MiB, 100 levels or 50,000 nodes (aliases followed) is one problem.
    """
    composed = compose(text)
    reader = RuleReader(file, dialect=dialect)
    rules: list[Rule] = []
    for document in composed.documents:
        rules += _document(reader, document)
    if composed.error:
        reader.problems.append(RuleProblem("", "", composed.error, file, composed.line))
    return _loaded(reader, rules)


def load_rule_list(node: yaml.Node | None, file: str) -> LoadedRules:
    """Load rules from a list that is already composed, such as the value of ``sources.custom`` in a configuration file.

    ``node``: a yaml.SequenceNode with the marks of its file; null is an empty list, anything else is a problem.
    """
    reader = RuleReader(file, dialect="custom")
    rules = [] if node is None or is_null(node) or _is_excessive(reader, node) else reader.rules(node, "", file)
    return _loaded(reader, rules)


def _loaded(reader: RuleReader, rules: list[Rule]) -> LoadedRules:
    if reader.mistakes > MAX_PROBLEMS:
        more = f"has {reader.mistakes - MAX_PROBLEMS} more problems"
        reader.problems.append(RuleProblem("", "", more, reader.file))
    return LoadedRules(tuple(rules), tuple(reader.problems))


def _document(reader: RuleReader, node: yaml.Node) -> list[Rule]:
    if is_null(node) or _is_excessive(reader, node):
        return []
    if isinstance(node, yaml.SequenceNode):
        return reader.rules(node, "", reader.file)
    if reader.dialect == "custom":
        reader.report(node, "", "must be a list of rules")
        return []
    return _object(reader, node)


def _is_excessive(reader: RuleReader, node: yaml.Node) -> bool:
    reason = excess(node)
    if reason:
        reader.report(node, "", reason)
    return reason is not None


def _object(reader: RuleReader, node: yaml.Node, path: str = "") -> list[Rule]:
    """Read a NodeFeatureRule, or a List of them."""
    entries = reader.entries(node, path)
    if not isinstance(node, yaml.MappingNode):
        return []
    kind, version = (_plain(entries.get(name)) for name in ("kind", "apiVersion"))
    if kind in _LISTS and not path:
        fields = reader.fields(node, path, _LIST_FIELDS)
        items = reader.items(fields["items"], "items") if "items" in fields else []
        return [rule for item_path, item in items for rule in _object(reader, item, item_path)]
    if (kind, version) != (KIND, API_VERSION):
        reader.report(node, path, f"is a {version or '?'} {kind or '?'}, and not a {API_VERSION} {KIND}")
        return []
    fields = reader.fields(node, path, _OBJECT_FIELDS)
    spec = fields.get("spec")
    if spec is None:
        reader.report(node, joined(path, "spec"), "is missing")
        return []
    spec_path = joined(path, "spec")
    rules = reader.fields(spec, spec_path, ("rules",)).get("rules")
    return [] if rules is None else reader.rules(rules, f"{spec_path}.rules", _object_name(fields) or reader.file)


def _object_name(fields: dict[str, yaml.Node]) -> str:
    metadata = fields.get("metadata")
    pairs = metadata.value if isinstance(metadata, yaml.MappingNode) else []
    return next((_plain(value) for key, value in pairs if _plain(key) == "name"), "")


def _plain(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
