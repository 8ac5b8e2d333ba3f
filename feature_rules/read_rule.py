"""One rule from its YAML node, in two dialects; used by :mod:`feature_rules.load`.

``rule`` is NodeFeatureRule v1alpha1, as the API server takes it. ``custom`` is the older form of ``sources.custom`` and
``custom.d``: it has fewer fields and operators, and shorter ways to write a condition.
"""

from collections.abc import Mapping
from typing import Any, Literal

import yaml

from feature_rules.errors import FeatureRulesError, MatchError
from feature_rules.expression import check_expression
from feature_rules.match import is_feature_name
from feature_rules.model import EFFECTS, OPERATORS, FeatureMatcher, MatchExpression, Rule, Taint
from feature_rules.yaml_nodes import NodeReader, is_null, joined

Dialect = Literal["rule", "custom"]

_CUSTOM_FIELDS = ("name", "labels", "labelsTemplate", "vars", "varsTemplate", "matchFeatures", "matchAny")
_ONLY_IN_RULE = ("annotations", "taints", "extendedResources")
_FIELDS: Mapping[Dialect, tuple[str, ...]] = {"rule": _CUSTOM_FIELDS + _ONLY_IN_RULE, "custom": _CUSTOM_FIELDS}
_OPERATORS: Mapping[Dialect, tuple[str, ...]] = {
    "rule": OPERATORS[1:],
    "custom": tuple(op for op in OPERATORS if op not in ("Ge", "Le", "GeLe")),
}
_MATCHER_FIELDS = ("feature", "matchExpressions", "matchName")
_TAINT_FIELDS = ("key", "value", "effect", "timeAdded")
_ONLY_RULE = "works only in a NodeFeatureRule object"


class RuleReader(NodeReader):
    """Reads the rules of one owner: ``owner`` is the name of a NodeFeatureRule object, or a file."""

    def __init__(self, file: str, *, dialect: Dialect) -> None:
        super().__init__(file, convert=dialect == "custom")
        self.dialect: Dialect = dialect

    def rules(self, node: yaml.Node, path: str, owner: str) -> list[Rule]:
        """Read a list of rules: those with nothing wrong."""
        rules = []
        for index, (_, item) in enumerate(self.items(node, path)):
            self.rule = f"rule {owner}/{_name_of(item) or f'#{index + 1}'}"
            before = self.mistakes
            rule = self._rule(item)
            if self.mistakes == before:
                rules.append(rule)
        self.rule = ""
        return rules

    def _rule(self, node: yaml.Node) -> Rule:
        fields = self._known(node, "", _FIELDS[self.dialect], _ONLY_IN_RULE)
        if isinstance(node, yaml.MappingNode) and "name" not in fields:
            self.report(node, "name", "is missing; every rule needs one")
        return Rule(
            name=self._required_text(fields, "name"),
            origin=self.rule,
            labels=self.text_map(fields.get("labels"), "labels"),
            labels_template=self._template(fields, "labelsTemplate"),
            annotations=self.text_map(fields.get("annotations"), "annotations"),
            vars=self.text_map(fields.get("vars"), "vars"),
            vars_template=self._template(fields, "varsTemplate"),
            taints=self._taints(fields.get("taints")),
            extended_resources=self.text_map(fields.get("extendedResources"), "extendedResources"),
            match_features=self._matchers(fields.get("matchFeatures"), "matchFeatures"),
            match_any=self._alternatives(fields.get("matchAny")),
        )

    def _known(
        self, node: yaml.Node, path: str, known: tuple[str, ...], elsewhere: tuple[str, ...]
    ) -> dict[str, yaml.Node]:
        """Read fields; those that only the other dialect has get a message of their own."""
        fields = self.fields(node, path, tuple(dict.fromkeys(known + elsewhere)))
        for name in sorted(set(fields).difference(known)):
            self.report(fields.pop(name), joined(path, name), _ONLY_RULE)
        return fields

    def _required_text(self, fields: Mapping[str, yaml.Node], name: str, path: str = "") -> str:
        if name not in fields:
            return ""
        text = self.text(fields[name], joined(path, name))
        if not text and isinstance(fields[name], yaml.ScalarNode) and not fields[name].value:
            self.report(fields[name], joined(path, name), "is empty")
        return text

    def _template(self, fields: Mapping[str, yaml.Node], name: str) -> Any:
        text = self.text(fields[name], name) if name in fields else ""
        if not text:
            return None
        from feature_rules.go_template import parse_template  # noqa: PLC0415 - memory for nodes that use templates

        try:
            return parse_template(text)
        except FeatureRulesError as error:
            self.report(fields[name], name, str(error))
            return None

    def _taints(self, node: yaml.Node | None) -> tuple[Taint, ...]:
        if node is None:
            return ()
        return tuple(self._taint(item, path) for path, item in self.items(node, "taints"))

    def _taint(self, node: yaml.Node, path: str) -> Taint:
        fields = self.fields(node, path, _TAINT_FIELDS)
        for name in ("key", "effect"):
            if isinstance(node, yaml.MappingNode) and name not in fields:
                self.report(node, joined(path, name), "is missing")
        effect = self._required_text(fields, "effect", path)
        if effect and effect not in EFFECTS:
            self.report(fields["effect"], joined(path, "effect"), f"{effect!r} is not one of {', '.join(EFFECTS)}")
        value = self.text(fields["value"], joined(path, "value")) if "value" in fields else ""
        return Taint(self._required_text(fields, "key", path), value, effect)

    def _alternatives(self, node: yaml.Node | None) -> tuple[tuple[FeatureMatcher, ...], ...] | None:
        if node is None:
            return None
        return tuple(self._alternative(item, path) for path, item in self.items(node, "matchAny"))

    def _alternative(self, node: yaml.Node, path: str) -> tuple[FeatureMatcher, ...]:
        fields = self.fields(node, path, ("matchFeatures",))
        if isinstance(node, yaml.MappingNode) and not fields:
            self.report(node, joined(path, "matchFeatures"), "is missing; without it the rule would always match")
        return self._matchers(fields.get("matchFeatures"), joined(path, "matchFeatures")) or ()

    def _matchers(self, node: yaml.Node | None, path: str) -> tuple[FeatureMatcher, ...] | None:
        if node is None:
            return None
        return tuple(self._matcher(item, item_path) for item_path, item in self.items(node, path))

    def _matcher(self, node: yaml.Node, path: str) -> FeatureMatcher:
        fields = self.fields(node, path, _MATCHER_FIELDS)
        feature = self._required_text(fields, "feature", path)
        if isinstance(node, yaml.MappingNode) and "feature" not in fields:
            self.report(node, joined(path, "feature"), "is missing")
        elif feature and not is_feature_name(feature):
            self.report(fields["feature"], joined(path, "feature"), f"{feature!r} is not of the form domain.feature")
        expressions = name = None
        if "matchExpressions" in fields:
            expressions = self._expressions(fields["matchExpressions"], joined(path, "matchExpressions"))
        if "matchName" in fields:
            name = self._expression(fields["matchName"], joined(path, "matchName"))
        return FeatureMatcher(feature, expressions, name)

    def _expressions(self, node: yaml.Node, path: str) -> dict[str, MatchExpression]:
        if self.dialect == "custom" and isinstance(node, yaml.SequenceNode):
            pairs = [self.text(item, item_path).partition("=") for item_path, item in self.items(node, path)]
            return {key: MatchExpression("In", (value,)) if equals else _EXISTS for key, equals, value in pairs}
        entries = self.entries(node, path)
        return {name: self._expression(value, joined(path, name)) for name, value in entries.items()}

    def _expression(self, node: yaml.Node, path: str) -> MatchExpression:
        if self.dialect == "custom" and is_null(node):
            return _EXISTS
        if self.dialect == "custom" and not isinstance(node, yaml.MappingNode):
            return self._checked(MatchExpression("In", self._values(node, path)), node, path)
        fields = self._known(node, path, _EXPRESSION_FIELDS[self.dialect], ("type",))
        before = self.mistakes
        op = self._operator(node, fields, path)
        values = self._values(fields["value"], joined(path, "value")) if "value" in fields else ()
        kind = self.text(fields["type"], joined(path, "type")) if "type" in fields else ""
        expression = MatchExpression(op, values, kind)
        if self.mistakes > before or not isinstance(node, yaml.MappingNode):
            return expression
        return self._checked(expression, fields.get("value", node), joined(path, "value"))

    def _operator(self, node: yaml.Node, fields: Mapping[str, yaml.Node], path: str) -> str:
        known = _OPERATORS[self.dialect]
        before = self.mistakes
        op = self.text(fields["op"], joined(path, "op")) if "op" in fields else ""
        if op in known or self.mistakes > before or not isinstance(node, yaml.MappingNode):
            return op
        if not op:
            self.report(fields.get("op", node), joined(path, "op"), f"is missing; it is one of {', '.join(known)}")
        elif op in OPERATORS:
            self.report(fields["op"], joined(path, "op"), f"{op} {_ONLY_RULE}")
        else:
            self.report(fields["op"], joined(path, "op"), f"there is no operator {op[:40]!r}", word=op, known=known)
        return op

    def _values(self, node: yaml.Node, path: str) -> tuple[str, ...]:
        if self.dialect == "custom" and isinstance(node, yaml.ScalarNode):
            return (self.text(node, path),)
        return tuple(self.text(item, item_path) for item_path, item in self.items(node, path))

    def _checked(self, expression: MatchExpression, node: yaml.Node, path: str) -> MatchExpression:
        try:
            check_expression(expression)
        except MatchError as error:
            self.report(node, path, str(error))
        return expression


_EXISTS = MatchExpression("Exists")
_EXPRESSION_FIELDS: Mapping[Dialect, tuple[str, ...]] = {"rule": ("op", "value", "type"), "custom": ("op", "value")}


def _name_of(node: yaml.Node) -> str:
    """Look for the name of a rule before it is read, so that every problem can name the rule."""
    if not isinstance(node, yaml.MappingNode):
        return ""
    names = (value.value for key, value in node.value if key.value == "name" and isinstance(value, yaml.ScalarNode))
    return str(next(names, ""))
