"""Making one NodeContent: names, who wins, what is left out."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Features
from feature_rules.keys.namespaces import NamespaceOptions, add_prefixes
from feature_rules.model import EFFECTS, RuleOutput, RuleOutputs, Taint
from kube_api.names import is_label_value, is_qualified_name
from kube_api.quantity import parse_quantity
from nfd_worker.labels.labels import ContentResult, label_key, make_content, source_prefix
from nfd_worker.labels.node_content import NodeContent

P = "feature.node.kubernetes.io"
OPTIONS = NamespaceOptions()
FEATURES = Features(attributes={"memory.numa": {"node_count": "2"}, "dom.attr": {"bad": "a b"}})

Sources = Mapping[str, Mapping[str, str]]


def rule(name: str, **wanted: object) -> RuleOutput:
    """Make what a matching rule wants."""
    return RuleOutput(name, f"rule o/{name}", **wanted)  # type: ignore[arg-type]


def make(
    sources: Sources | None = None,
    custom: tuple[RuleOutput, ...] = (),
    cluster: tuple[RuleOutput, ...] = (),
    options: NamespaceOptions = OPTIONS,
    annotations: Mapping[str, str] | None = None,
) -> ContentResult:
    """Make content of what is given."""
    outputs = {"custom": RuleOutputs(custom), "cluster": RuleOutputs(cluster)}
    return make_content(sources or {}, outputs, FEATURES, options, annotations or {})


def test_nothing_makes_nothing() -> None:
    """Without features and rules there are no labels."""
    content, refusals = make_content({}, {}, Features(), OPTIONS)
    assert (content.labels, content.annotations, content.extended_resources, content.taints) == ({}, {}, {}, ())
    assert refusals == ()


@pytest.mark.parametrize(
    ("source", "name", "key"),
    [
        ("pci", "0300_10de.present", f"{P}/pci-0300_10de.present"),
        ("pci", "vendor.io/x", "vendor.io/x"),
        ("local", "x", f"{P}/x"),
        ("custom", "rdma.capable", f"{P}/rdma.capable"),
    ],
)
def test_names_without_a_namespace_get_one(source: str, name: str, key: str) -> None:
    """The source is part of it, but for rules and feature files."""
    assert label_key(source, name) == key
    rules = (rule("r", labels={name: "1"}),) if source == "custom" else ()
    assert make({source: {name: "1"}}, rules).content.labels == {key: "1"}


def test_the_prefix_of_a_source_is_what_its_keys_begin_with() -> None:
    """Every label key of a source begins with the source's prefix."""
    assert label_key("pci", "x").startswith(source_prefix("pci"))


@pytest.mark.parametrize(
    ("sources", "custom", "cluster", "value"),
    [
        pytest.param({"cpu": {f"{P}/x": "cpu"}, "pci": {f"{P}/x": "pci"}}, {}, {}, "pci", id="later source"),
        pytest.param({"cpu": {f"{P}/x": "cpu"}}, {f"{P}/x": "custom"}, {}, "custom", id="custom over source"),
        pytest.param({"local": {"x": "local"}}, {"x": "custom"}, {}, "local", id="local over custom"),
        pytest.param({"local": {"x": "local"}, "pci": {f"{P}/x": "pci"}}, {}, {}, "pci", id="full key over short"),
        pytest.param({"local": {f"{P}/x": "local"}, "pci": {f"{P}/x": "pci"}}, {}, {}, "local", id="local comes last"),
        pytest.param({"local": {f"{P}/x": "local"}}, {}, {"x": "cluster"}, "cluster", id="cluster over local"),
    ],
)
def test_who_wins(sources: Sources, custom: dict[str, str], cluster: dict[str, str], value: str) -> None:
    """Sources, then custom rules, then feature files, then the cluster's rules."""
    made = make(sources, (rule("c", labels=custom),), (rule("r", labels=cluster),))
    assert made == (made.content._replace(labels={f"{P}/x": value}), ())


def test_a_later_rule_overwrites_either_spelling_of_a_key() -> None:
    """Prefixes come before the merge of rules."""
    first, second = rule("a", labels={f"{P}/x": "1"}), rule("b", labels={"x": "2"})
    assert make(cluster=(first, second)).content.labels == {f"{P}/x": "2"}


def test_labels_come_sorted() -> None:
    """Equal content makes equal requests."""
    made = make({"b": {"z": "1"}, "a": {"z": "1", "vendor.io/x": "2"}})
    assert list(made.content.labels) == [f"{P}/a-z", f"{P}/b-z", "vendor.io/x"]


def test_what_kubernetes_refuses_is_left_out_with_its_reason() -> None:
    """The refusal reads as a log line; the other labels stay."""
    made = make({"cpu": {"cpuid.POWER5+": "true", "cpuid.VSX": "true"}})
    assert made.content.labels == {f"{P}/cpu-cpuid.VSX": "true"}
    (refusal,) = made.refusals
    assert refusal.reason == "invalid-key"
    assert str(refusal).startswith(
        f"source cpu: label {P}/cpu-cpuid.POWER5+=true left out: the key is not a qualified name"
    )


MIG_CONFIG = {"nvidia.com/mig.config": "all-1g"}


@pytest.mark.parametrize(
    ("wanted", "origin"),
    [
        pytest.param({"cluster": (rule("gpus", labels=MIG_CONFIG),)}, "rule o/gpus", id="a rule of the cluster"),
        pytest.param({"custom": (rule("mine", labels=MIG_CONFIG),)}, "rule o/mine", id="a rule of the node"),
        pytest.param({"sources": {"local": MIG_CONFIG}}, "source local", id="a feature file"),
    ],
)
def test_a_guarded_label_needs_its_whole_key_to_be_allowed(wanted: dict[str, Any], origin: str) -> None:
    """Otherwise the refusal names who wants it, the key and the setting."""
    nearly = NamespaceOptions(extra_label_ns=("nvidia.com",))
    content, refusals = make(**wanted, options=nearly)
    assert content.labels == {}
    assert [str(refusal) for refusal in refusals] == [
        f"{origin}: label nvidia.com/mig.config=all-1g left out: this key selects how GPUs are shared or partitioned; "
        "to allow it, add the whole key to extraLabelNs"
    ]
    allowed = NamespaceOptions(extra_label_ns=("nvidia.com/mig.config",))
    assert make(**wanted, options=allowed) == (NodeContent(labels=MIG_CONFIG), ())


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        pytest.param("a.b/foo ", " bar", "'a.b/foo '=' bar'", id="blanks"),
        pytest.param("a.b/foo", "b\tr", "a.b/foo='b\\tr'", id="tabulator"),
        pytest.param("a.b/f\x1bo", "x", "'a.b/f\\x1bo'=x", id="control character"),
        pytest.param("a.b/f\u200bo", "x", "'a.b/f\\u200bo'=x", id="invisible character"),
        pytest.param("a.b/foo+", "x", "a.b/foo+=x", id="a character that can be seen"),
    ],
)
def test_what_is_wrong_with_a_key_can_be_seen(key: str, value: str, shown: str) -> None:
    """A blank or a control character is quoted: without it the message would show a valid label."""
    (refusal,) = make({"local": {key: value}}).refusals
    assert f"label {shown} left out" in str(refusal)


def test_a_bad_label_of_a_source_does_not_hide_a_good_one() -> None:
    """Upstream's worker drops it before it merges."""
    made = make({"cpu": {f"{P}/x": "good"}, "local": {f"{P}/x": "not good"}})
    assert made.content.labels == {f"{P}/x": "good"}
    assert [(refusal.origin, refusal.reason) for refusal in made.refusals] == [("source local", "invalid-value")]


def test_a_bad_label_of_a_clusters_rule_hides_a_good_one() -> None:
    """Upstream's master merges before it filters."""
    made = make({"local": {"x": "good"}}, cluster=(rule("r", labels={"x": "not good"}),))
    assert made.content.labels == {}
    assert [(refusal.origin, refusal.reason) for refusal in made.refusals] == [("rule o/r", "invalid-value")]


def test_dynamic_values_are_looked_up_in_labels_and_extended_resources() -> None:
    """What they name is checked like any other value."""
    wanted = {"n": "@memory.numa.node_count", "bad": "@dom.attr.bad", "none": "@dom.attr.none"}
    made = make(
        cluster=(rule("r", labels=wanted, extended_resources=wanted),), custom=(rule("c", labels={"c": wanted["n"]}),)
    )
    assert made.content.labels == {f"{P}/n": "2", f"{P}/c": "2"}
    assert made.content.extended_resources == {f"{P}/n": "2"}
    told = {(refusal.kind, refusal.key, refusal.value, refusal.reason) for refusal in made.refusals}
    assert told == {
        ("label", f"{P}/bad", "a b", "invalid-value"),
        ("label", f"{P}/none", "@dom.attr.none", "no-such-feature"),
        ("extended resource", f"{P}/bad", "a b", "invalid-value"),
        ("extended resource", f"{P}/none", "@dom.attr.none", "no-such-feature"),
    }


def test_dynamic_values_are_looked_up_for_feature_files() -> None:
    """Dynamic values also work in feature files, which upstream rejects."""
    made = make({"local": {"n": "@memory.numa.node_count"}})
    assert (made.content.labels, made.refusals) == ({f"{P}/n": "2"}, ())


def test_annotations_and_taints_are_taken_as_written() -> None:
    """Only labels and extended resources can be dynamic."""
    taint = Taint("vendor.io/t", "@memory.numa.node_count", "NoSchedule")
    output = rule("r", annotations={"a": "@memory.numa.node_count"}, taints=(taint,))
    made = make(cluster=(output,), options=OPTIONS._replace(enable_taints=True))
    assert made.content.annotations == {f"{P}/a": "@memory.numa.node_count"}
    assert [refusal.reason for refusal in made.refusals] == ["invalid-value"]


def test_custom_rules_make_labels_only() -> None:
    """As upstream's have nothing else."""
    output = rule(
        "c", annotations={"a": "1"}, extended_resources={"r": "1"}, taints=(Taint("a.io/b", "", "NoExecute"),)
    )
    assert make(custom=(output,)) == make()


def test_own_annotations_pass_and_win() -> None:
    """No rule can lie about the boot."""
    own = {"driverwright.io/boot-id": "b", "driverwright.io/kernel-version": "6.12.9+deb12-amd64"}
    output = rule("r", annotations={"driverwright.io/boot-id": "lie", "a": "1"})
    made = make(cluster=(output,), annotations=own)
    assert list(made.content.annotations.items()) == [*own.items(), (f"{P}/a", "1")]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        pytest.param(NamespaceOptions(disable_labels=True), ({}, {"a": "1"}, {"e": "1"}), id="labels"),
        pytest.param(NamespaceOptions(disable_annotations=True), ({"l": "1"}, {}, {"e": "1"}), id="annotations"),
        pytest.param(NamespaceOptions(disable_extended_resources=True), ({"l": "1"}, {"a": "1"}, {}), id="resources"),
    ],
)
def test_what_is_disabled_is_left_out_and_the_rest_stays(
    options: NamespaceOptions, left: tuple[dict[str, str], ...]
) -> None:
    """It was asked for, so nobody is warned; the worker's own annotations always stay."""
    own = {"driverwright.io/x": "1"}
    output = rule("r", labels={"l": "1"}, annotations={"a": "1"}, extended_resources={"e": "1"})
    content, refusals = make(cluster=(output,), options=options, annotations=own)
    labels, annotations, resources = (add_prefixes(wanted) for wanted in left)
    assert content == NodeContent(labels, own | annotations, resources)
    assert refusals == ()


def test_without_automatic_prefixes_keys_stay_as_they_are() -> None:
    """Annotations then need a namespace; labels and resources do not."""
    output = rule("r", labels={"l": "1"}, annotations={"a": "1"}, extended_resources={"e": "1"})
    made = make(cluster=(output,), options=OPTIONS._replace(auto_prefix=False))
    content = made.content
    assert (content.labels, content.annotations, content.extended_resources) == ({"l": "1"}, {}, {"e": "1"})
    assert [(refusal.kind, refusal.reason) for refusal in made.refusals] == [("annotation", "unprefixed")]


def test_taints_need_to_be_enabled_and_say_so_once() -> None:
    """Disabled taints are rejected once, with the setting that enables them."""
    output = rule("r", taints=(Taint("a.io/b", "", "NoExecute"), Taint("a.io/c", "", "NoExecute")))
    made = make(cluster=(output, output))
    assert made.content.taints == ()
    assert [(refusal.reason, refusal.kind) for refusal in made.refusals] == [("not-enabled", "taint")]
    assert "--enable-taints" in made.refusals[0].message


def test_taints_are_sorted_and_a_later_one_wins() -> None:
    """Key and effect together are what a Node has once."""
    taints = (Taint("b.io/x", "1", "NoSchedule"), Taint("a.io/x", "1", "NoSchedule"), Taint("b.io/x", "3", "NoExecute"))
    outputs = (rule("r", taints=taints), rule("s", taints=(Taint("b.io/x", "2", "NoSchedule"), Taint("x"))))
    made = make(cluster=outputs, options=OPTIONS._replace(enable_taints=True))
    assert [str(taint) for taint in made.content.taints] == [
        "a.io/x=1:NoSchedule", "b.io/x=3:NoExecute", "b.io/x=2:NoSchedule",
    ]  # fmt: skip
    assert [refusal.reason for refusal in made.refusals] == ["unprefixed"]


def test_the_workers_whitelist_is_for_labels_of_sources() -> None:
    """It sees the source's prefix, and makes no refusals."""
    options = OPTIONS._replace(source_label_whitelist="^pci-.*10de|^c$")
    sources = {"pci": {"0300_10de.present": "true"}, "cpu": {"cpuid.AVX": "true"}, "local": {"l": "1"}}
    made = make(sources, (rule("c", labels={"c": "1", "d": "1"}),), (rule("r", labels={"r": "1"}),), options)
    assert made.content.labels == {f"{P}/pci-0300_10de.present": "true", f"{P}/c": "1", f"{P}/r": "1"}
    assert made.refusals == ()


def test_the_other_whitelist_is_for_all_labels() -> None:
    """The whitelist of upstream's master applies to all labels."""
    options = OPTIONS._replace(label_whitelist="^r")
    made = make({"local": {"l": "1", "rl": "1"}}, cluster=(rule("r", labels={"r": "1", "x": "1"}),), options=options)
    assert list(made.content.labels) == [f"{P}/r", f"{P}/rl"]
    assert made.refusals == ()


def test_one_refusal_is_reported_once() -> None:
    """Rules of one name can want the same bad thing."""
    output = rule("r", labels={"x": "a b"})
    assert len(make(custom=(output, output)).refusals) == 1


texts = st.text(max_size=8) | st.sampled_from(
    [
        f"{P}/x",
        "vendor.io/x",
        "kubernetes.io/x",
        "x",
        "@dom.attr.bad",
        "@memory.numa.node_count",
        "5",
        "1500m",
        "\ud800",
    ]
)
mappings = st.dictionaries(texts, texts, max_size=4)
outputs = st.builds(
    RuleOutput, rule=st.just("r"), origin=st.just("rule r"), labels=mappings, annotations=mappings,
    extended_resources=mappings,
    taints=st.lists(st.builds(Taint, texts, texts, st.sampled_from([*EFFECTS, "", "x"])), max_size=3).map(tuple),
)  # fmt: skip
namespace_lists = st.lists(texts, max_size=2).map(tuple)
options_of = st.builds(
    lambda denied, extra, taints, prefix: NamespaceOptions(denied, extra, enable_taints=taints, auto_prefix=prefix),
    namespace_lists, namespace_lists, st.booleans(), st.booleans(),
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["cpu", "pci", "local"]), mappings),
    st.lists(outputs, max_size=2).map(tuple), st.lists(outputs, max_size=2).map(tuple), options_of,
)  # fmt: skip
def test_whatever_is_wanted_what_comes_out_is_valid(
    sources: Sources, custom: tuple[RuleOutput, ...], cluster: tuple[RuleOutput, ...], options: NamespaceOptions
) -> None:
    """Nothing reaches the API server that it would refuse, and what came out goes through once more unchanged."""
    content = make(sources, custom, cluster, options).content
    assert all(is_qualified_name(key) and is_label_value(value) for key, value in content.labels.items())
    assert all(is_qualified_name(key) and len(value.encode()) <= 1024 for key, value in content.annotations.items())
    for key, value in content.extended_resources.items():
        quantity = parse_quantity(value)
        assert is_qualified_name(key)
        assert quantity is not None
        assert quantity.nanos >= 0
    for taint in content.taints:
        assert is_qualified_name(taint.key)
        assert is_label_value(taint.value)
        assert taint.effect in EFFECTS
    assert len({(taint.key, taint.effect) for taint in content.taints}) == len(content.taints)
    again = rule(
        "again", labels=content.labels, annotations=content.annotations,
        extended_resources=content.extended_resources, taints=content.taints,
    )  # fmt: skip
    assert make(cluster=(again,), options=options) == ContentResult(content, ())
    assert make({"local": content.labels}, options=options).content.labels == content.labels
