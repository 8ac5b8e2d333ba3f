"""Which keys may still be wanted once a source is read that could not be: of rules that look at it, and no others."""

import shutil
from collections.abc import Set
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features, merge
from feature_rules.keys.namespaces import NamespaceOptions
from feature_rules.load import load_rules
from feature_rules.model import Rule, RuleOutput
from feature_rules.run import run_rules
from nfd_worker.config.config import Settings
from nfd_worker.config.rule_files import RuleSet
from nfd_worker.cycle import run_cycle, with_back_references
from nfd_worker.host import Host
from nfd_worker.labels.labels import CLUSTER, CUSTOM, make_content
from nfd_worker.labels.node_content import NodeContent, OpenKeys, Origins, Unknown
from nfd_worker.labels.open_keys import Layer, open_keys, runnable_rules
from nfd_worker.labels.origins import origins_of
from nfd_worker.publish.ownership import kept_for, with_kept
from nfd_worker.sources import SOURCES, discover
from tests.support.nfd_worker.trees import HOSTS, RECORDED, recorded

PREFIX = "feature.node.kubernetes.io"
UNREAD = {"pci"}


def rules(*texts: str, file: str = "") -> tuple[Rule, ...]:
    """Load rules that are all good, each of a text in flow style."""
    loaded = load_rules("\n".join(f"- {{{text}}}" for text in texts), "r.yaml", dialect="rule")
    assert not loaded.problems
    return tuple(rule._replace(file=file) for rule in loaded.rules)


def opened(*texts: str) -> OpenKeys:
    """Say what is open of some rules of the cluster while nothing is known of PCI, and something of the CPU."""
    cluster = rules(*texts)
    made = run_rules(cluster, Features(attributes={"cpu.model": {"family": "6"}})).matched
    return open_keys((Layer(cluster),), made, UNREAD, auto_prefix=True)


PCI = 'matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}]'
CPU = "matchFeatures: [{feature: cpu.model, matchExpressions: {family: {op: Exists}}}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"name: r, labels: {{a: '1'}}, {PCI}", ("a",), id="looks at it"),
        pytest.param(f"name: r, labels: {{a: '1'}}, {PCI.replace('pci', 'PCI')}", ("a",), id="in any letter case"),
        pytest.param(f"name: r, labels: {{a: '1'}}, {CPU}", None, id="looks at another source"),
        pytest.param("name: r, labels: {a: '1'}", None, id="looks at nothing"),
        pytest.param(
            "name: r, labels: {a: '1'}, matchAny: [{matchFeatures: [{feature: cpu.model}]}, "
            "{matchFeatures: [{feature: pci.device}]}]",
            ("a",),
            id="one alternative looks at it",
        ),
        pytest.param(
            "name: r, labels: {a: '@pci.device.x', b: '1', c: '@cpu.model.family'}", ("a",), id="dynamic value"
        ),
        pytest.param(
            f"name: r, annotations: {{a: '1'}}, extendedResources: {{b: '1'}}, taints: "
            f"[{{key: c, effect: NoSchedule}}], {PCI}",
            ("a", "b", "c"),
            id="all kinds",
        ),
        pytest.param(
            f'name: r, labelsTemplate: "{{{{range .cpu.model}}}}a={{{{.Value}}}}{{{{end}}}}", {CPU}',
            None,
            id="template of what is known",
        ),
    ],
)
def test_a_rule_that_looks_at_an_unknown_source_is_open(text: str, expected: tuple[str, ...] | None) -> None:
    """With the keys that it names."""
    assert opened(text) == ({} if expected is None else {"rule r.yaml/r": tuple(f"{PREFIX}/{key}" for key in expected)})


def test_a_template_of_what_is_unknown_may_name_any_key() -> None:
    """Its labels are not in the rule."""
    text = (
        f'name: r, labels: {{a: "1"}}, labelsTemplate: "{{{{range .pci.device}}}}x={{{{.vendor}}}}{{{{end}}}}", {PCI}'
    )
    assert opened(text) == {"rule r.yaml/r": None}


def test_a_template_may_write_a_dynamic_value() -> None:
    """Then its key is open, as that of a rule that writes it down."""
    text = f'name: r, labelsTemplate: "a=@pci.device.x\\nb=1", {CPU}'
    assert opened(text) == {"rule r.yaml/r": (f"{PREFIX}/a",)}


def test_a_rule_that_looks_at_what_an_open_rule_makes_is_open() -> None:
    """By a condition only if it comes later; by a dynamic value wherever it stands."""
    back = "matchFeatures: [{feature: rule.matched, matchExpressions: {a: {op: Exists}}}]"
    before, after = f"name: before, labels: {{b: '1'}}, {back}", f"name: after, labels: {{c: '1'}}, {back}"
    dynamic = "name: dynamic, labels: {d: '@rule.matched.a'}"
    looks = f"name: looks, labels: {{a: '1'}}, {PCI}"
    assert set(opened(dynamic, before, looks, after)) == {
        f"rule r.yaml/{name}" for name in ("looks", "after", "dynamic")
    }
    assert opened(dynamic, before, after) == {}


def test_rules_of_one_file_have_one_origin() -> None:
    """The keys of those that are open stand together, and not those of the others."""
    cluster = rules(f"name: a, labels: {{a: '1'}}, {PCI}", f"name: b, labels: {{b: '1'}}, {PCI}",
                    f"name: c, labels: {{c: '1'}}, {CPU}", file="rules.d/f")  # fmt: skip
    assert open_keys((Layer(cluster),), (), UNREAD, auto_prefix=True) == {"rules.d/f": (f"{PREFIX}/a", f"{PREFIX}/b")}


def test_a_rule_on_what_a_rule_made_that_could_not_be_read_is_open() -> None:
    """Its file is there and broken: what it made is not known, and all else is."""
    cluster = rules(
        "name: c, labels: {gpu-node: '1'}, matchFeatures: [{feature: rule.matched, "
        "matchExpressions: {has-gpu: {op: Exists}}}]",
        f"name: d, labels: {{d: '1'}}, {PCI}",
    )
    (keys,) = open_keys((Layer(cluster, lacks_rules=True),), (), frozenset(), auto_prefix=True).values()
    assert keys == (f"{PREFIX}/gpu-node",)
    assert open_keys((Layer(cluster),), (), frozenset(), auto_prefix=True) == {}


@pytest.mark.parametrize("host", RECORDED)
def test_features_of_a_source_begin_with_its_name(host: str) -> None:
    """That is how a rule is known to look at it."""
    for name in SOURCES:
        found = discover(name, recorded(host), Settings().sources)
        if isinstance(found, Features):
            assert {key.partition(".")[0] for kind in found[:3] for key in kind} <= {name}


def test_a_source_that_fails_from_the_start_holds_what_rules_made_of_it_and_nothing_else() -> None:
    """After a restart: a rule of another source that does not match any more loses its label."""
    cluster = (
        *rules(f"name: of pci, labels: {{of-pci: '1'}}, {PCI}", file="rules.d/pci"),
        *rules("name: of cpu, labels: {of-cpu: '1'}, matchFeatures: [{feature: cpu.gone}]", file="rules.d/cpu"),
    )
    record: Origins = {"rules.d/pci": (f"{PREFIX}/of-pci",), "rules.d/cpu": (f"{PREFIX}/of-cpu",)}
    ours = NodeContent({key: "1" for keys in record.values() for key in keys})
    host = recorded("intel-gpu-server")
    report = run_cycle(host, Settings(), {}, RuleSet(cluster=cluster), {"pci": Failed("no sysfs"), "gpu": Features()})
    assert report.unknown is not None
    kept = with_kept(NodeContent(), ours, kept_for(report.unknown, record, ours, report.origins))
    assert kept.labels == {f"{PREFIX}/of-pci": "1"}


DENIES = "matchFeatures: [{feature: rule.matched, matchExpressions: {a: {op: DoesNotExist}}}]"
IS_TWO = DENIES.replace("{op: DoesNotExist}", "{op: In, value: ['2']}")
THERE = DENIES.replace("DoesNotExist", "Exists")
LOOKS = f"name: looks, labels: {{a: '1'}}, {PCI}"


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        pytest.param(Layer(rules(LOOKS, f"name: r, labels: {{b: '1'}}, {DENIES}")), ["looks"], id="of an open rule"),
        pytest.param(
            Layer(rules(LOOKS, f"name: r, labels: {{b: '1'}}, {DENIES.replace('a:', 'z:')}")),
            ["looks", "r"],
            id="that no open rule makes",
        ),
        pytest.param(
            Layer(rules("name: k, labels: {a: '2'}", LOOKS, f"name: r, labels: {{b: '1'}}, {IS_TWO}")),
            ["k", "looks"],
            id="or has another value by an open rule",
        ),
        pytest.param(
            Layer(rules("name: k, labels: {a: '2'}", LOOKS, f"name: r, labels: {{b: '1'}}, {THERE}")),
            ["k", "looks", "r"],
            id="is there whatever an open rule makes",
        ),
        pytest.param(
            Layer(rules(f"name: t, {PCI}, varsTemplate: 'x=1'", f"name: r, labels: {{b: '1'}}, {DENIES}")),
            ["t"],
            id="that a template may make",
        ),
        pytest.param(
            Layer(rules(f"name: r, labels: {{b: '1'}}, {DENIES}", LOOKS)), ["r", "looks"], id="before the open rule"
        ),
        pytest.param(
            Layer(rules(f"name: r, labels: {{b: '1'}}, {DENIES}"), lacks_rules=True), [], id="a rule file is not read"
        ),
        pytest.param(
            Layer(rules(f"name: r, labels: {{b: '1'}}, {DENIES.replace('rule.matched', 'local.label')}"),
                  lacks_files=True),
            [],
            id="a feature file is not read",
        ),
        pytest.param(
            Layer(rules(f"name: f, labels: {{a: '1'}}, {PCI.replace('pci.device', 'local.label')}",
                        f"name: r, labels: {{b: '1'}}, {DENIES}"), lacks_files=True),
            ["f"],
            id="of a rule on a feature file that is not read",
        ),
    ],
)  # fmt: skip
def test_what_shall_not_exist_is_not_asked_where_nobody_knows(layer: Layer, expected: list[str]) -> None:
    """A rule that asks for it is not run."""
    assert [rule.name for rule in runnable_rules(layer, UNREAD)] == expected


def test_an_alternative_that_is_known_counts() -> None:
    """Only those that nobody can decide on are left out."""
    text = f"name: r, labels: {{b: '1'}}, matchAny: [{{{DENIES}}}, {{{CPU}}}]"
    _, rule = runnable_rules(Layer(rules(LOOKS, text)), UNREAD)
    assert rule.match_any is not None
    assert [matcher.feature for (matcher,) in rule.match_any] == ["cpu.model"]


@pytest.mark.parametrize("before", [{}, {"rule r.yaml/r": (f"{PREFIX}/b",)}], ids=["not there", "there"])
def test_a_rule_makes_nothing_new_of_what_does_not_exist_while_a_source_is_unread(before: Origins) -> None:
    """After a restart: its label is on the Node afterwards as before, whatever it was."""
    cluster = rules(LOOKS, f"name: r, labels: {{b: '1'}}, {DENIES}")
    host = recorded("intel-gpu-server")
    report = run_cycle(host, Settings(), {}, RuleSet(cluster=cluster), {"pci": Failed("no sysfs"), "gpu": Features()})
    assert f"{PREFIX}/b" not in report.content.labels
    assert report.unknown is not None
    ours = NodeContent({key: "1" for keys in before.values() for key in keys})
    kept = with_kept(report.content, ours, kept_for(report.unknown, before, ours, report.origins))
    assert (f"{PREFIX}/b" in kept.labels) is bool(before)


@pytest.mark.parametrize("before", [{}, {"rule r.yaml/r": (f"{PREFIX}/b",)}], ids=["not there", "there"])
def test_a_rule_makes_nothing_new_of_what_does_not_exist_while_a_feature_file_is_unread(
    tmp_path: Path, before: Origins
) -> None:
    """Also where that file is new: no record has it."""
    it = Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))
    folder = it / "etc/kubernetes/node-feature-discovery/features.d"
    folder.mkdir(parents=True)
    (folder / "good").write_text("z=1\n")
    (folder / "bad").symlink_to("/proc/self/mem")
    cluster = rules(f"name: r, labels: {{b: '1'}}, {DENIES.replace('rule.matched', 'local.label')}")
    report = run_cycle(Host(str(it)), Settings(), {}, RuleSet(cluster=cluster), {"gpu": Features()})
    assert f"{PREFIX}/b" not in report.content.labels
    assert report.unknown is not None
    ours = NodeContent({key: "1" for keys in before.values() for key in keys})
    kept = with_kept(report.content, ours, kept_for(report.unknown, before, ours, report.origins))
    assert (f"{PREFIX}/b" in kept.labels) is bool(before)


FEATURES = ("pci.device", "pci.slot", "cpu.model", "rule.matched")
CONDITIONS = (
    "matchExpressions: {a: {op: Exists}}", "matchExpressions: {a: {op: DoesNotExist}}",
    "matchExpressions: {b: {op: In, value: ['1']}}", "matchName: {op: In, value: ['a']}",
)  # fmt: skip
MATCHERS = st.builds("{{feature: {}, {}}}".format, st.sampled_from(FEATURES), st.sampled_from(CONDITIONS))
LISTS = st.lists(MATCHERS, min_size=1, max_size=2).map(lambda found: f"[{', '.join(found)}]")
VALUES = st.sampled_from(["'1'", "'@pci.slot.a'", "'@cpu.model.b'", "'@rule.matched.a'"])
TEMPLATES = st.sampled_from(
    [
        "",
        'labelsTemplate: "{{range .pci.slot}}{{.Name}}={{.Value}}\\n{{end}}"',
        'labelsTemplate: "{{range .cpu.model}}{{.Name}}=@pci.slot.b\\n{{end}}"',
        'varsTemplate: "{{range .rule.matched}}b={{.Value}}\\n{{end}}"',
    ]
)


@st.composite
def some_rules(draw: st.DrawFn, *, is_plain: bool = False) -> tuple[Rule, ...]:
    """Make rules that look at each other and at two sources; plain ones have known values, no templates."""
    texts = []
    values, templates = (st.sampled_from(["'1'", "'2'"]), st.just("")) if is_plain else (VALUES, TEMPLATES)
    for number in range(draw(st.integers(1, 4))):
        parts = [f"name: r{number}", f"labels: {{{draw(st.sampled_from('abcd'))}: {draw(values)}}}"]
        parts += [f"matchFeatures: {draw(LISTS)}"] if draw(st.booleans()) else []
        alternatives = st.lists(LISTS, min_size=1, max_size=2)
        parts += (
            [f"matchAny: [{', '.join(f'{{matchFeatures: {found}}}' for found in draw(alternatives))}]"]
            if draw(st.booleans())
            else []
        )
        texts.append(", ".join(filter(None, [*parts, draw(templates)])))
    return rules(*texts, file=draw(st.sampled_from(["", "rules.d/f"])))


ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"))
PCI_FEATURES = st.builds(
    lambda slot, devices: Features(attributes={"pci.slot": slot}, instances={"pci.device": devices}),
    ATTRIBUTES,
    st.lists(ATTRIBUTES, max_size=2).map(tuple),
)
CPU_FEATURES = ATTRIBUTES.map(lambda model: Features(attributes={"cpu.model": model}))


def made_of(
    custom: tuple[Rule, ...], cluster: tuple[Rule, ...], found: Features, unread: Set[str] = frozenset()
) -> tuple[Origins, list[RuleOutput]]:
    """Say which origin wants which keys, as a cycle does."""
    layers = {CUSTOM: Layer(custom), CLUSTER: Layer(cluster)}
    outputs = {name: run_rules(runnable_rules(layer, unread), found) for name, layer in layers.items()}
    named = with_back_references(found, outputs[CLUSTER])
    content, _ = make_content({}, outputs, named, NamespaceOptions())
    made = [output for ran in outputs.values() for output in ran.matched]
    return origins_of(content, made, {}, auto_prefix=True), made


@given(some_rules(), some_rules(), CPU_FEATURES, PCI_FEATURES)
def test_nothing_that_an_unknown_source_makes_is_lost(
    custom: tuple[Rule, ...], cluster: tuple[Rule, ...], cpu: Features, pci: Features
) -> None:
    """Whatever it had before a restart: each key that is on the Node for it is wanted now, or stays."""
    record, _ = made_of(custom, cluster, merge([cpu, pci]))
    known, made = made_of(custom, cluster, cpu, UNREAD)
    unknown = Unknown(rules=open_keys((Layer(custom), Layer(cluster)), made, UNREAD, auto_prefix=True))
    kept = kept_for(unknown, record, NodeContent(), known)
    there, wanted = (set(chain.from_iterable(origins.values())) for origins in (record, known))
    assert {key for key in there - wanted if not kept.has(key)} == set()


@given(some_rules(is_plain=True), CPU_FEATURES, PCI_FEATURES)
def test_nothing_is_made_that_an_unknown_source_would_take_away(
    cluster: tuple[Rule, ...], cpu: Features, pci: Features
) -> None:
    """Whatever the source has: each key that is wanted without it is wanted with it."""
    known, _ = made_of((), cluster, cpu, UNREAD)
    full, _ = made_of((), cluster, merge([cpu, pci]))
    assert {key for keys in known.values() for key in keys} <= {key for keys in full.values() for key in keys}
