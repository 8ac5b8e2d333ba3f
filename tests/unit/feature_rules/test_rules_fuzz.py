"""Whatever a rule text or a node holds: rules are loaded and run or told about, nothing is raised, nothing is slow."""

import time
from collections.abc import Callable
from functools import wraps

from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Features
from feature_rules.load import load_rules
from feature_rules.model import OPERATORS, FeatureMatcher, MatchExpression, Rule
from feature_rules.read_rule import Dialect
from feature_rules.run import run_rules
from tests.unit.feature_rules.test_load import OBJECT

CUSTOM = """\
- name: "custom"
  labels: {a: true, b: 1}
  vars:
    c: |
      text
  labelsTemplate: |
    {{ range .pci.device }}{{ .vendor }}=x
    {{ end }}{{ if .cpu }}n={{ len .cpu.cpuid }}{{ end }}
  matchFeatures:
    - feature: kernel.config
      matchExpressions: [A, "B=y"]
    - feature: pci.device
      matchExpressions: &e
        vendor: ["10de", '8086']
        class: "0300"
        device: null
        rev: {op: GtLt, value: ["1", "5"]}
  matchAny:
  - matchFeatures:
    - {feature: cpu.cpuid, matchName: {op: InRegexp, value: ["^AVX[0-9]+$", "(a+)+$"]}}
    - feature: pci.device
      matchExpressions: *e
"""

SCRAPS = [
    *"[]{}:,-?&*!|>'\"%@`#~ \n\t\\", "\n---\n", "\n...\n", "<<: *e", "&e ", "*e", "!!int ", "!!binary ", "!x ", "? ",
    "null", "yes", "0300", "1.0e+400", "\\ud800", "\\UFFFFFFFF", "%YAML 9.9\n---\n", "%TAG ! x\n", "\x00", "\x85",
    "\ufeff", "\U0001f600", "((((", "a{1000}{1000}", "op: In", "value: [x]", "type: version", "\n- name: x\n",
    "[" * 120, "&e [*e]", "- " * 120, "{{", "}}", "{{ end }}", "9" * 5000,
]  # fmt: skip

TEXTS = st.one_of(st.sampled_from(["", "a", "1", "2", "1.2", "true", "(", "a+", "^a$", "v1.2-rc1", "cpu.x"]), st.text())
NAMES = st.sampled_from(["cpu.x", "CPU.X", "pci.device", "rule.matched", "x", "."])
DICTS = st.dictionaries(TEXTS, TEXTS, max_size=3)
EXPRESSIONS = st.builds(
    MatchExpression,
    op=st.one_of(st.sampled_from(OPERATORS), TEXTS),
    value=st.lists(TEXTS, max_size=3).map(tuple),
    type=st.sampled_from(["", "version", "other"]),
)
MATCHERS = st.lists(
    st.builds(
        FeatureMatcher,
        feature=NAMES,
        expressions=st.none() | st.dictionaries(TEXTS, EXPRESSIONS, max_size=3),
        name=st.none() | EXPRESSIONS,
    ),
    max_size=2,
).map(tuple)
RULES = st.builds(
    Rule,
    name=TEXTS,
    labels=DICTS,
    vars=DICTS,
    labels_template=st.none(),
    vars_template=st.none(),
    match_features=st.none() | MATCHERS,
    match_any=st.none() | st.lists(MATCHERS, max_size=2).map(tuple),
)
FEATURES = st.builds(
    Features,
    flags=st.dictionaries(NAMES, st.frozensets(TEXTS, max_size=3), max_size=2),
    attributes=st.dictionaries(NAMES, DICTS, max_size=2),
    instances=st.dictionaries(NAMES, st.lists(DICTS, max_size=2).map(tuple), max_size=2),
)
ONE_OF_EACH = Features(
    flags={"cpu.cpuid": frozenset({"AVX", "AVX512"})},
    attributes={"kernel.config": {"A": "y", "B": "y"}, "kernel.version": {"full": "6.1.0"}},
    instances={"pci.device": ({"vendor": "8086", "class": "0300", "revision": "2.0", "rev": "3"},)},
)


def within_a_second(test: Callable[..., None]) -> Callable[..., None]:
    """Let no example take more than a second of CPU; the wall's clock says more about the machine's other work."""

    @wraps(test)
    def timed(*arguments: object, **words: object) -> None:
        start = time.thread_time()
        test(*arguments, **words)
        assert time.thread_time() - start < 1.0

    return timed


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a good text with some pieces cut out, doubled, or put in."""
    text = draw(st.sampled_from([OBJECT, CUSTOM, CUSTOM + "---\n" + OBJECT]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 20)))
        scrap = draw(st.one_of(st.sampled_from(SCRAPS), st.text(max_size=5), st.just(text[start:end] * 2)))
        text = text[:start] + scrap + text[end:]
    return text


@given(
    text=st.one_of(mutated(), st.text(), st.text(alphabet="[]{}:,-?&*! \nax")),
    dialect=st.sampled_from(["rule", "custom"]),
)
@within_a_second
def test_any_text_loads_and_what_loads_runs(text: str, dialect: Dialect) -> None:
    """What is not a good rule is a problem that says where and what."""
    loaded = load_rules(text, "f.yaml", dialect)
    assert all(problem.message and str(problem).startswith("f.yaml") for problem in loaded.problems)
    assert all(rule.name and rule.origin for rule in loaded.rules)
    outputs = run_rules(loaded.rules, ONE_OF_EACH)
    assert len(outputs.matched) + len(outputs.problems) <= len(loaded.rules)


@given(rules=st.lists(RULES, max_size=4), features=FEATURES)
@within_a_second
def test_any_rules_run_over_any_features(rules: list[Rule], features: Features) -> None:
    """Each rule matches, does not, or is a problem; and twice the same is the same."""
    outputs = run_rules(rules, features)
    assert len(outputs.matched) + len(outputs.problems) <= len(rules)
    assert run_rules(rules, features) == outputs
