"""Rules as values: what :mod:`feature_rules.load` makes and :mod:`feature_rules.match` reads.

The fields are those of NodeFeatureRule v1alpha1 (https://kubernetes-sigs.github.io/node-feature-discovery/).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NONE: Mapping[str, str] = MappingProxyType({})

OPERATORS = (
    "", "In", "NotIn", "InRegexp", "Exists", "DoesNotExist", "Gt", "Ge", "Lt", "Le", "GtLt", "GeLe",
    "IsTrue", "IsFalse",
)  # fmt: skip
"""All operators; the empty one matches anything that is there (MatchAny)."""

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Effects of a taint, as the API server spells them."""


class Taint(NamedTuple):
    """A taint of a Node; ``effect`` is one of :data:`EFFECTS`, ``value`` may be empty."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class MatchExpression(NamedTuple):
    """One condition on one element: ``type`` is empty or ``version``."""

    op: str
    value: tuple[str, ...] = ()
    type: str = ""


class FeatureMatcher(NamedTuple):
    """Conditions on one feature; with neither kind of condition the feature must exist.

    ``feature``: dotted name, such as ``pci.device``; looked up in lower case.
    ``expressions``: element name -> condition; all must hold. None when not given, which differs from empty.
    ``name``: a condition on the names of the elements.
    """

    feature: str
    expressions: Mapping[str, MatchExpression] | None = None
    name: MatchExpression | None = None


class Rule(NamedTuple):
    """One rule. ``origin``: where it comes from, for messages: ``rule <object or file>/<name>``.

    ``file``: the file that has it, where it can go bad on its own, such as ``custom.d/a.yaml``; empty for any other.

    ``labels_template``, ``vars_template``: parsed templates (:mod:`feature_rules.go_template`), None when not given.
    ``match_any``: alternatives, each a list of matchers; None when not given.
    """

    name: str
    origin: str = ""
    labels: Mapping[str, str] = _NONE
    labels_template: Any = None
    annotations: Mapping[str, str] = _NONE
    vars: Mapping[str, str] = _NONE
    vars_template: Any = None
    taints: tuple[Taint, ...] = ()
    extended_resources: Mapping[str, str] = _NONE
    match_features: tuple[FeatureMatcher, ...] | None = None
    match_any: tuple[tuple[FeatureMatcher, ...], ...] | None = None
    file: str = ""


class RuleProblem(NamedTuple):
    """What is wrong with a rule: at load time with its file and line, at run time without.

    ``field``: path inside the rule, such as ``matchFeatures[0].matchExpressions.vendor.op``; empty for the whole rule.
    """

    rule: str
    field: str
    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return ": ".join(part for part in (place, self.rule, self.field, self.message) if part)


class LoadedRules(NamedTuple):
    """The good rules of a text, in order, and what was wrong with the others."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[RuleProblem, ...] = ()


class RuleOutput(NamedTuple):
    """What one matching rule wants: keys and values as written, neither prefixed nor checked.

    ``origin``, ``file``: as of its :class:`Rule`.
    """

    rule: str
    origin: str
    labels: Mapping[str, str] = _NONE
    vars: Mapping[str, str] = _NONE
    annotations: Mapping[str, str] = _NONE
    extended_resources: Mapping[str, str] = _NONE
    taints: tuple[Taint, ...] = ()
    file: str = ""


class RuleOutputs(NamedTuple):
    """What all matching rules want, in their order, and the rules that failed."""

    matched: tuple[RuleOutput, ...] = ()
    problems: tuple[RuleProblem, ...] = ()
