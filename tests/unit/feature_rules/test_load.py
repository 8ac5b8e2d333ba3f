"""Rules from YAML: what loads, and for what does not, the rule, the field, the line and what to do."""

import textwrap

import pytest
import yaml

from feature_rules.load import load_rule_list, load_rules
from feature_rules.model import FeatureMatcher, LoadedRules, MatchExpression, Rule, Taint

OBJECT = """\
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata:
  name: boards
spec:
  rules:
    - name: fpga
      labels: {fpga: "true"}
      annotations: {example.com/board: arria}
      vars: {has-fpga: "1"}
      extendedResources: {example.com/fpga: "2"}
      taints:
        - {key: feature.node.kubernetes.io/fpga, value: "yes", effect: NoSchedule}
        - {key: feature.node.kubernetes.io/board, effect: NoExecute}
      matchFeatures:
        - feature: pci.device
          matchExpressions:
            vendor: {op: In, value: ["8086"]}
            revision: {op: Ge, value: ["1.2"], type: version}
          matchName: {op: Exists}
      matchAny:
        - matchFeatures:
            - feature: kernel.version
        - matchFeatures:
            - feature: cpu.cpuid
              matchExpressions: {}
"""

FPGA = Rule(
    name="fpga",
    origin="rule boards/fpga",
    labels={"fpga": "true"},
    annotations={"example.com/board": "arria"},
    vars={"has-fpga": "1"},
    extended_resources={"example.com/fpga": "2"},
    taints=(
        Taint("feature.node.kubernetes.io/fpga", "yes", "NoSchedule"),
        Taint("feature.node.kubernetes.io/board", "", "NoExecute"),
    ),
    match_features=(
        FeatureMatcher(
            "pci.device",
            {"vendor": MatchExpression("In", ("8086",)), "revision": MatchExpression("Ge", ("1.2",), "version")},
            MatchExpression("Exists"),
        ),
    ),
    match_any=((FeatureMatcher("kernel.version"),), (FeatureMatcher("cpu.cpuid", {}),)),
)


def rule(text: str) -> str:
    """Make a list of one rule named ``r`` of further fields."""
    return "- name: r\n" + textwrap.indent(textwrap.dedent(text), "  ")


def condition(text: str) -> str:
    """Make a list of one rule with one condition, on line 5."""
    return rule(f"matchFeatures:\n  - feature: pci.device\n    matchExpressions:\n      x: {text}\n")


def expressions(loaded: LoadedRules) -> object:
    """Give the expressions of the only matcher of the only rule."""
    assert loaded.problems == ()
    assert loaded.rules[0].match_features is not None
    return loaded.rules[0].match_features[0].expressions


def test_an_object_loads_with_every_field() -> None:
    """All fields of NodeFeatureRule v1alpha1 are read, except the templates."""
    assert load_rules(OBJECT, "f.yaml") == LoadedRules((FPGA,))


def test_a_rule_without_conditions_has_none() -> None:
    """Not given and null are the same, and differ from empty."""
    loaded = load_rules("[{name: a, labels: null, matchFeatures: null}, {name: b, matchFeatures: []}]", "f.yaml")
    assert loaded.rules == (Rule("a", "rule f.yaml/a"), Rule("b", "rule f.yaml/b", match_features=()))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{OBJECT}---\n---\n# nothing\n---\n[{{name: last}}]\n", id="documents"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n-\n" + textwrap.indent(OBJECT, "  ") + "- apiVersion: "
            "nfd.k8s-sigs.io/v1alpha1\n  kind: NodeFeatureRule\n  spec: {rules: [{name: last}]}\n",
            id="List",
        ),
    ],
)
def test_several_objects_load_in_order(text: str) -> None:
    """Of one text: documents, also empty ones and bare lists, and the items of a List; a file stands in for a name."""
    loaded = load_rules(text, "f.yaml")
    assert [one.origin for one in loaded.rules] == ["rule boards/fpga", "rule f.yaml/last"]
    assert loaded.problems == ()


@pytest.mark.parametrize("dialect", ["rule", "custom"])
@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "[]"])
def test_nothing_is_no_rules(text: str, dialect: str) -> None:
    """An empty file has no rules and is no mistake."""
    assert load_rules(text, "f.yaml", "custom" if dialect == "custom" else "rule") == LoadedRules()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "matchFeature: []", "f.yaml:2: rule f.yaml/r: matchFeature: there is no such field; did you mean "
            "matchFeatures?", id="misspelt field",
        ),
        pytest.param(
            "frobnicate: 1", "f.yaml:2: rule f.yaml/r: frobnicate: there is no such field; there are name, labels, "
            "labelsTemplate, vars, varsTemplate, matchFeatures, matchAny, annotations, taints, extendedResources",
            id="unknown field",
        ),
        pytest.param("labels: {a: true}", "f.yaml:2: rule f.yaml/r: labels.a: must be a string; put it in quotes",
                     id="boolean for a text"),
        pytest.param("labels: {a: [x]}", "f.yaml:2: rule f.yaml/r: labels.a: must be a string", id="list for a text"),
        pytest.param("labels: [a]", "f.yaml:2: rule f.yaml/r: labels: must be a mapping", id="list for a mapping"),
        pytest.param("labels: {yes: a}",
                     "f.yaml:2: rule f.yaml/r: labels: has a key that is not a string; put it in quotes",
                     id="key that YAML would change"),
        pytest.param("labels: {[a]: b}",
                     "f.yaml:2: rule f.yaml/r: labels: has a key that is not a string; put it in quotes",
                     id="list as key"),
        pytest.param("vars: {a: x}\nvars: {b: y}", "f.yaml:3: rule f.yaml/r: vars: is given twice", id="twice"),
        pytest.param("matchAny: {}", "f.yaml:2: rule f.yaml/r: matchAny: must be a list", id="mapping for a list"),
        pytest.param("matchAny: [{}]", "f.yaml:2: rule f.yaml/r: matchAny[0].matchFeatures: is missing; without it the "
                     "rule would always match", id="empty alternative"),
        pytest.param("matchFeatures: [{matchName: {op: Exists}}]",
                     "f.yaml:2: rule f.yaml/r: matchFeatures[0].feature: is missing", id="no feature"),
        pytest.param("matchFeatures: [{feature: ''}]", "f.yaml:2: rule f.yaml/r: matchFeatures[0].feature: is empty",
                     id="empty feature"),
        pytest.param("matchFeatures: [{feature: pci}]", "f.yaml:2: rule f.yaml/r: matchFeatures[0].feature: 'pci' is "
                     "not of the form domain.feature", id="feature without a domain"),
        pytest.param("taints: [{key: a, effect: NoSchedul}]", "f.yaml:2: rule f.yaml/r: taints[0].effect: 'NoSchedul' "
                     "is not one of NoSchedule, PreferNoSchedule, NoExecute", id="bad effect"),
        pytest.param("taints: [{key: a}]", "f.yaml:2: rule f.yaml/r: taints[0].effect: is missing", id="no effect"),
        pytest.param("taints: [{effect: NoExecute}]", "f.yaml:2: rule f.yaml/r: taints[0].key: is missing",
                     id="no key"),
        pytest.param("taints: [x]", "f.yaml:2: rule f.yaml/r: taints[0]: must be a mapping", id="text for a taint"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule(text: str, problem: str) -> None:
    """One problem for one mistake; the rule is left out."""
    loaded = load_rules(rule(text), "f.yaml")
    assert ([str(one) for one in loaded.problems], loaded.rules) == ([problem], ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{op: in, value: [a]}", "op: there is no operator 'in'; did you mean In?", id="operator's case"),
        pytest.param("{value: [a]}", "op: is missing; it is one of In, NotIn, InRegexp, Exists, DoesNotExist, Gt, Ge, "
                     "Lt, Le, GtLt, GeLe, IsTrue, IsFalse", id="no operator"),
        pytest.param("{op: In}", "value: operator In takes at least one value, not 0", id="no value"),
        pytest.param("{op: Exists, value: [a]}", "value: operator Exists takes no value, not 1", id="a value"),
        pytest.param("{op: Gt, value: ['1', '2']}", "value: operator Gt takes exactly one value, not 2", id="two"),
        pytest.param("{op: GeLe, value: ['1']}", "value: operator GeLe takes two values, not 1", id="one"),
        pytest.param("{op: Lt, value: ['2.0']}", "value: '2.0' is not an integer of 64 bits", id="no integer"),
        pytest.param("{op: GtLt, value: ['2', '1']}", "value: 2 must be less than 1", id="empty range"),
        pytest.param("{op: Gt, value: [a_b], type: version}", "value: 'a_b' is not a version such as 1, 1.2, v1.2.3 or "
                     "1.2.3-rc1", id="no version"),
        pytest.param("{op: Gt, value: ['1'], type: semver}", "value: there is no type 'semver'; leave it out for "
                     "integers, or use version", id="no type"),
        pytest.param("{op: InRegexp, value: [(]}", "value: '(' is not a regular expression: missing ): (",
                     id="bad pattern"),
        pytest.param("{op: In, value: [1]}", "value[0]: must be a string; put it in quotes", id="number"),
        pytest.param("{op: In, value: a}", "value: must be a list", id="text for a list"),
        pytest.param("{op: [In], value: [a]}", "op: must be a string", id="list for an operator"),
        pytest.param("{op: Exists, values: []}", "values: there is no such field; did you mean value?", id="field"),
        pytest.param("[a]", "must be a mapping", id="list for a condition"),
        pytest.param("null", "must be a mapping", id="nothing for a condition"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_condition(text: str, problem: str) -> None:
    """What can never work is found before there are any features."""
    loaded = load_rules(condition(text), "f.yaml")
    path = "matchFeatures[0].matchExpressions.x"
    place = f"{path}: {problem}" if problem == "must be a mapping" else f"{path}.{problem}"
    assert [str(one) for one in loaded.problems] == [f"f.yaml:5: rule f.yaml/r: {place}"]


@pytest.mark.parametrize("field", ["labelsTemplate", "varsTemplate"])
def test_templates_are_parsed_once_and_beforehand(field: str) -> None:
    """A rule keeps its parsed template; a mistake in one is reported with its field and line."""
    loaded = load_rules(
        f"- name: good\n  {field}: a={{{{ len .pci.device }}}}\n- name: bad\n  {field}: '{{{{'\n", "f.yaml"
    )
    (good,) = loaded.rules
    template = good.labels_template or good.vars_template
    assert template.expand({"pci": {"device": [{}, {}]}}) == "a=2"
    assert [(one.rule, one.field, one.line) for one in loaded.problems] == [("rule f.yaml/bad", field, 4)]


def test_an_empty_template_is_none() -> None:
    """An empty template counts as one that is not given."""
    assert load_rules(rule("labelsTemplate: ''"), "f.yaml").rules == (Rule("r", "rule f.yaml/r"),)


def test_one_bad_rule_does_not_stop_the_others() -> None:
    """All its mistakes are reported, each with its line."""
    text = "- name: a\n- label: {}\n  vars: {x: 1}\n- name: b\n- nonsense\n"
    loaded = load_rules(text, "f.yaml")
    assert [one.name for one in loaded.rules] == ["a", "b"]
    assert [(one.rule, one.field, one.line) for one in loaded.problems] == [
        ("rule f.yaml/#2", "label", 2),
        ("rule f.yaml/#2", "name", 2),
        ("rule f.yaml/#2", "vars.x", 3),
        ("rule f.yaml/#4", "", 5),
    ]


@pytest.mark.parametrize("text", ["- name: ''", "- name: ", "- labels: {}"])
def test_a_rule_needs_a_name(text: str) -> None:
    """Neither empty nor missing; its place stands in for it."""
    loaded = load_rules(text, "f.yaml")
    assert [(one.rule, one.field, one.line) for one in loaded.problems] == [("rule f.yaml/#1", "name", 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "f.yaml:1: is not YAML: expected the node content, but found '<stream end>'", id="open"),
        pytest.param("a: *b", "f.yaml:1: is not YAML: found undefined alias 'b'", id="undefined alias"),
        pytest.param('\n"\\UFFFFFFFF"', "f.yaml:2: is not YAML: an escape or a version is too large a number",
                     id="escape"),
        pytest.param("\x00", "f.yaml: is not YAML: unacceptable character #x0000: special characters are not allowed",
                     id="control character"),
        pytest.param("[" * 101, "f.yaml:1: is not YAML: nested deeper than 100 levels", id="too deep"),
        pytest.param("x" * (1 << 20) + "x", "f.yaml: is longer than 1048576 characters", id="too long"),
        pytest.param("text", "f.yaml:1: must be a mapping", id="a text"),
        pytest.param("kind: ConfigMap\napiVersion: v1",
                     "f.yaml:1: is a v1 ConfigMap, and not a nfd.k8s-sigs.io/v1alpha1 NodeFeatureRule",
                     id="other kind"),
        pytest.param("a: b", "f.yaml:1: is a ? ?, and not a nfd.k8s-sigs.io/v1alpha1 NodeFeatureRule", id="no kind"),
        pytest.param("kind: NodeFeatureRule\napiVersion: nfd.k8s-sigs.io/v1alpha1", "f.yaml:1: spec: is missing",
                     id="no spec"),
        pytest.param("kind: NodeFeatureRule\napiVersion: nfd.k8s-sigs.io/v1alpha1\nspec: {rule: []}",
                     "f.yaml:3: spec.rule: there is no such field; did you mean rules?", id="misspelt rules"),
        pytest.param("kind: List\nitems: [x]", "f.yaml:2: items[0]: must be a mapping", id="item of a List"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text(text: str, problem: str) -> None:
    """What is not YAML, too much of it, or no rules at all."""
    loaded = load_rules(text, "f.yaml")
    assert [str(one) for one in loaded.problems] == [problem]


def test_documents_before_a_mistake_stand() -> None:
    """Rules of documents before a YAML error are loaded; what follows is not."""
    loaded = load_rules("[{name: a}]\n---\n[{name: b}\n---\n[{name: c}]", "f.yaml")
    assert [one.name for one in loaded.rules] == ["a"]
    assert [one.line for one in loaded.problems] == [4]


def test_only_the_first_problems_are_reported() -> None:
    """A file of something else does not flood the log, nor takes long; what is wrong stays wrong."""
    loaded = load_rules("- {x: 1, y: 2}\n" * 1000 + "- {name: good}\n- {name: bad, x: 1}\n", "f.yaml")
    assert [one.name for one in loaded.rules] == ["good"]
    assert len(loaded.problems) == 201
    assert str(loaded.problems[-1]) == "f.yaml: has 2801 more problems"


def test_json_is_read_with_its_escapes() -> None:
    """Characters beyond 16 bits, which JSON writes as two escapes, become one."""
    loaded = load_rules(r'[{"name": "\ud83d\ude00", "labels": {"a": "\ud83d"}}]', "f.yaml")
    assert (loaded.rules[0].name, loaded.rules[0].labels) == ("\N{GRINNING FACE}", {"a": "\N{REPLACEMENT CHARACTER}"})


def test_aliases_and_merge_keys_are_followed() -> None:
    """What a rule gives itself goes before what it merges, and an earlier merge before a later one."""
    text = """
    - &a {name: a, labels: {x: "1"}, vars: {v: a}}
    - &b {name: b, vars: {v: b}, annotations: {y: "2"}}
    - {<<: [*b, *a], name: c}
    """
    loaded = load_rules(textwrap.dedent(text), "f.yaml")
    assert loaded.rules[2] == Rule("c", "rule f.yaml/c", labels={"x": "1"}, vars={"v": "b"}, annotations={"y": "2"})


def test_dates_and_times_are_texts() -> None:
    """As for upstream's YAML, which does not know them."""
    assert load_rules(rule("labels: {day: 2024-01-31, at: 12:30}"), "f.yaml").rules[0].labels == {
        "day": "2024-01-31",
        "at": "12:30",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("8086", MatchExpression("In", ("8086",)), id="number"),
        pytest.param("'0300'", MatchExpression("In", ("0300",)), id="text"),
        pytest.param("yes", MatchExpression("In", ("true",)), id="boolean"),
        pytest.param("-1.5", MatchExpression("In", ("-1.5",)), id="fraction"),
        pytest.param("['0300', '0302']", MatchExpression("In", ("0300", "0302")), id="list"),
        pytest.param("null", MatchExpression("Exists"), id="null"),
        pytest.param("", MatchExpression("Exists"), id="nothing"),
        pytest.param("{op: Gt, value: 5}", MatchExpression("Gt", ("5",)), id="one value"),
        pytest.param("{OP: In, Value: [a]}", MatchExpression("In", ("a",)), id="fields in another case"),
        pytest.param("{}", MatchExpression(""), id="no operator"),
    ],
)
def test_the_custom_dialect_has_short_conditions(text: str, value: MatchExpression) -> None:
    """A text, a number or a list is In; nothing is Exists."""
    assert expressions(load_rules(condition(text), "f.yaml", "custom")) == {"x": value}


def test_the_custom_dialect_has_short_sets() -> None:
    """A list of names, or of names with a value that may hold further equal signs."""
    text = "matchFeatures:\n  - feature: kernel.config\n    matchExpressions: [A, B=y, C=a=b]\n"
    assert expressions(load_rules(rule(text), "f.yaml", "custom")) == {
        "A": MatchExpression("Exists"),
        "B": MatchExpression("In", ("y",)),
        "C": MatchExpression("In", ("a=b",)),
    }


def test_the_custom_dialect_turns_labels_into_texts() -> None:
    """Label values that YAML reads as numbers or booleans become text as written."""
    loaded = load_rules(rule("labels: {a: true, b: 10, c: }"), "f.yaml", "custom")
    assert loaded.rules[0].labels == {"a": "true", "b": "10", "c": ""}


@pytest.mark.parametrize("number", ["0300", "0x8086", "1.10", "1.0e+3", ".inf", "1_000", "1234567890123456"])
def test_numbers_that_yaml_would_change_must_be_quoted(number: str) -> None:
    """An unquoted 0300 is 192 to YAML: upstream takes it, and the rule never matches."""
    loaded = load_rules(condition(number), "f.yaml", "custom")
    assert [one.message for one in loaded.problems] == ["must be a string; put it in quotes"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(rule("taints: []"), "taints: works only in a NodeFeatureRule object", id="field"),
        pytest.param(condition("{op: Ge, value: ['1']}"),
                     "matchFeatures[0].matchExpressions.x.op: Ge works only in a NodeFeatureRule object",
                     id="operator"),
        pytest.param(condition("{op: Gt, value: ['1'], type: version}"),
                     "matchFeatures[0].matchExpressions.x.type: works only in a NodeFeatureRule object", id="type"),
        pytest.param(condition("[]"),
                     "matchFeatures[0].matchExpressions.x: operator In takes at least one value, not 0",
                     id="no values"),
        pytest.param(condition("[01]"), "matchFeatures[0].matchExpressions.x[0]: must be a string; put it in quotes",
                     id="numbers in a list"),
    ],
)  # fmt: skip
def test_what_the_custom_dialect_does_not_have(text: str, problem: str) -> None:
    """The message says where it works, or what to do."""
    loaded = load_rules(text, "f.yaml", "custom")
    assert [f"{one.field}: {one.message}" for one in loaded.problems] == [problem]


def test_the_custom_dialect_is_one_list() -> None:
    """An object in custom.d is a mistake, as it is upstream."""
    loaded = load_rules(OBJECT, "f.yaml", "custom")
    assert ([str(one) for one in loaded.problems], loaded.rules) == (["f.yaml:1: must be a list of rules"], ())


def test_rules_inside_a_configuration_file_keep_their_lines() -> None:
    """The list is already composed; its lines are those of its file."""
    root = yaml.compose("sources:\n  custom:\n    - name: a\n    - name: b\n      label: {}\n", yaml.SafeLoader)
    assert root is not None
    loaded = load_rule_list(root.value[0][1].value[0][1], "worker.conf")
    assert [one.origin for one in loaded.rules] == ["rule worker.conf/a"]
    assert [(one.rule, one.line) for one in loaded.problems] == [("rule worker.conf/b", 5)]


@pytest.mark.parametrize(("text", "problems"), [("null", 0), ("[]", 0), ("text", 1), ("a: b", 1)])
def test_a_configuration_without_a_list_has_no_rules(text: str, problems: int) -> None:
    """Null is an empty list, anything else a problem."""
    loaded = load_rule_list(yaml.compose(text, yaml.SafeLoader), "worker.conf")
    assert (loaded.rules, len(loaded.problems)) == ((), problems)
