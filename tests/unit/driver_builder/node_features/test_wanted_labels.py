"""Which labels NodeFeature objects give a node: namespaces, order, owners, bounds, and what is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.node_feature import MOST_LABELS, NodeFeature, read_node_feature
from driver_builder.node_features.wanted_labels import (
    MOST_LABELS_OF_A_NODE,
    MOST_OBJECTS_OF_A_NODE,
    View,
    applied,
    decide,
)
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.label_owners import LabelOwner
from tests.support.driver_builder.labelled_nodes import node_feature

FEATURE = "feature.node.kubernetes.io"


def of(*, namespace: str = "a", name: str = "x", labels: dict[str, str]) -> NodeFeature:
    """Make an object with labels as they are."""
    return NodeFeature(namespace=namespace, name=name, uid=f"{namespace}-{name}", node="n", labels=labels)


def node(labels: dict[str, str] | None = None, **owned: set[str]) -> Node:
    """Make a node; ``worker={...}`` are the keys that nfd-worker owns, ``ours`` those that were applied before."""
    managers = {"worker": "nfd-worker", "ours": FIELD_MANAGER, "person": "kubectl-label"}
    owners = tuple(LabelOwner(manager=managers[name], keys=tuple(sorted(keys))) for name, keys in owned.items())
    return Node(name="n", labels=labels or {}, annotations={}, label_owners=owners)


def said(some: Node, *views: View) -> list[str]:
    """Return what is refused, in words."""
    return [f"{refusal.feature}: {refusal}" for refusal in decide(some, views).refusals]


def test_labels_of_an_object_are_set_and_names_without_a_namespace_get_that_of_nfd() -> None:
    """As NFD does; a name that is there in full as well wins."""
    object_ = of(labels={"gpu": "1", "nvidia.com/gpu.count": "8", f"{FEATURE}/rack": "a", "rack": "b"})
    made = decide(node(), [(object_,)])
    assert made.labels == {f"{FEATURE}/gpu": "1", f"{FEATURE}/rack": "a", "nvidia.com/gpu.count": "8"}
    assert made.refusals == ()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        pytest.param("driverwright.io/ns.gpu.ready", "1", "reserved for driverwright", id="ready"),
        pytest.param("a.driverwright.io/x", "1", "reserved for driverwright", id="below ours"),
        pytest.param("kubernetes.io/arch", "arm64", "belongs to Kubernetes", id="of Kubernetes"),
        pytest.param("node-role.kubernetes.io/control-plane", "", "belongs to Kubernetes", id="a role"),
        pytest.param("k8s.io/x", "1", "belongs to Kubernetes", id="of Kubernetes, short"),
        pytest.param("scheduling.k8s.io/x", "1", "belongs to Kubernetes", id="below that"),
        pytest.param("node-restriction.kubernetes.io/x", "1", "belongs to Kubernetes", id="restricted"),
        pytest.param(f"{FEATURE}/kernel-version.full", "6.1", "set by nfd-worker alone", id="a kernel"),
        pytest.param("system-os_release.ID", "debian", "set by nfd-worker alone", id="an operating system"),
        pytest.param("nvidia.com/mig.config", "all-1g", "selected by an administrator", id="how GPUs are partitioned"),
        pytest.param("nvidia.com/device-plugin.config", "a", "selected by an administrator", id="how GPUs are shared"),
        pytest.param("vendor.io/", "1", "not a qualified name", id="no name"),
        pytest.param("a b", "1", "not a qualified name", id="a space"),
        pytest.param(f"vendor.io/{'x' * 64}", "1", "not a qualified name", id="a long name"),
        pytest.param("vendor.io/x", "a b", "the value must be", id="a value"),
        pytest.param("vendor.io/x", "x" * 64, "the value must be", id="a long value"),
        pytest.param("vendor.io/x", "\x1b[2J", "the value must be", id="a terminal's"),
        pytest.param("vendor.io/x", "@system.name.nodename", "write the value itself", id="dynamic"),
    ],
)
def test_a_label_that_nobody_may_set_is_refused_and_the_others_are_set(key: str, value: str, words: str) -> None:
    """The rules of the worker's labels, and what targets are made of; the words say why, printably."""
    made = decide(node(), [(of(labels={key: value, "vendor.io/good": "1"}),)])
    assert made.labels == {"vendor.io/good": "1"}
    (refusal,) = made.refusals
    assert words in refusal.message
    assert str(refusal).isprintable()


@pytest.mark.parametrize(
    "key", [f"{FEATURE}/x", f"sub.{FEATURE}/x", "profile.node.kubernetes.io/x", "vendor.io/x", "a.x-k8s.io/x"]
)
def test_namespaces_that_are_free(key: str) -> None:
    """Also below NFD's own."""
    assert decide(node(), [(of(labels={key: "1"}),)]).labels == {key: "1"}


def test_the_first_namespace_of_the_list_comes_first_then_the_first_name() -> None:
    """Whatever the order in which they came; the later one is told who comes before, unless both want the same."""
    first, second = of(namespace="b", name="z", labels={"v.io/k": "1"}), of(name="a", labels={"v.io/k": "2"})
    third, fourth = of(name="b", labels={"v.io/k": "3"}), of(name="c", labels={"v.io/k": "1"})
    assert decide(node(), [(first,), (third, second)]).labels == {"v.io/k": "1"}
    assert decide(node(), [(third, second), (first,)]).labels == {"v.io/k": "2"}
    assert said(node(), (fourth, third, second), (first,)) == [
        "a/b: v.io/k=3: NodeFeature a/a comes first, and sets it to '2'",
        "a/c: v.io/k=1: NodeFeature a/a comes first, and sets it to '2'",
        "b/z: v.io/k=1: NodeFeature a/a comes first, and sets it to '2'",
    ]
    assert said(node(), (first,), (fourth,)) == []


def test_a_label_that_is_refused_hides_no_good_one() -> None:
    """The next object has it."""
    bad, good = of(name="a", labels={"v.io/k": "not this"}), of(name="b", labels={"v.io/k": "1"})
    assert decide(node(), [(bad, good)]).labels == {"v.io/k": "1"}


def test_what_somebody_else_has_set_stays_theirs() -> None:
    """The worker's labels and a person's; the message names the field manager."""
    some = node({"v.io/k": "1", "v.io/p": "x"}, worker={"v.io/k"}, person={"v.io/p"})
    view = (of(labels={"v.io/k": "2", "v.io/p": "y", "v.io/free": "1"}),)
    assert decide(some, [view]).labels == {"v.io/free": "1"}
    assert said(some, view) == [
        "a/x: v.io/k=2: field manager 'nfd-worker' has set another value",
        "a/x: v.io/p=y: field manager 'kubectl-label' has set another value",
    ]


def test_an_equal_value_is_shared() -> None:
    """So that it stays when the other one lets it go: no label is absent at any time of a migration."""
    some = node({"v.io/k": "1"}, worker={"v.io/k"})
    assert decide(some, [(of(labels={"v.io/k": "1"}),)]).labels == {"v.io/k": "1"}


def test_what_is_shared_stays_so_while_an_object_wants_another_value() -> None:
    """Otherwise the label would go with the other owner; without an object that wants it, it is let go."""
    some = node({"v.io/k": "1"}, worker={"v.io/k"}, ours={"v.io/k"})
    view = (of(labels={"v.io/k": "2"}), of(name="y", labels={"v.io/k": "3"}))
    made = decide(some, [view])
    assert made.labels == {"v.io/k": "1"}
    assert [str(item) for item in made.refusals] == [
        f"v.io/k={value}: field manager 'nfd-worker' has set another value" for value in "23"
    ]
    assert decide(some, [view], {"v.io/k": "nfd-worker"}).labels == {}, "the other one has changed it"
    assert decide(some, [()]).labels == {}
    assert decide(node({"v.io/k": "1"}, ours={"v.io/k"}), [view]).labels == {"v.io/k": "2"}


def test_what_the_server_has_just_refused_is_left_out() -> None:
    """The node has changed since it was read."""
    made = decide(node(), [(of(labels={"v.io/k": "1", "v.io/j": "2"}),)], {"v.io/k": "nfd-worker"})
    assert made.labels == {"v.io/j": "2"}
    assert [str(item) for item in made.refusals] == ["v.io/k=1: field manager 'nfd-worker' has set another value"]


def test_a_label_without_an_owner_is_taken() -> None:
    """As the API server does."""
    assert decide(node({"v.io/k": "1"}), [(of(labels={"v.io/k": "2"}),)]).labels == {"v.io/k": "2"}


def test_without_an_object_nothing_is_wanted() -> None:
    """What was applied before goes."""
    some = node({"v.io/k": "1"}, ours={"v.io/k"})
    assert applied(some) == {"v.io/k": "1"}
    assert decide(some, [()]).labels == {}
    assert decide(some, []).labels == {}


def test_what_is_not_known_changes_nothing_that_is_there() -> None:
    """A namespace that cannot be read may want what is there; what comes before it, it cannot change."""
    some = node({"v.io/k": "1", "v.io/j": "1"}, ours={"v.io/k", "v.io/j"})
    other = of(labels={"v.io/k": "2", "v.io/new": "3"})
    assert decide(some, [None]).labels == {"v.io/k": "1", "v.io/j": "1"}
    assert decide(some, [None, (other,)]).labels == {"v.io/k": "1", "v.io/j": "1", "v.io/new": "3"}
    assert decide(some, [(other,), None]).labels == {"v.io/k": "2", "v.io/j": "1", "v.io/new": "3"}
    assert said(some, None, (other,)) == []


def test_labels_are_bounded() -> None:
    """Of an object and of a node; what is beyond is counted, and refused."""
    many = {f"v.io/k{number:04}": "1" for number in range(MOST_LABELS + 7)}
    read = read_node_feature(node_feature("a", "x", "n", many, uid="u"))
    assert read is not None
    assert len(read.labels) == MOST_LABELS
    assert [str(item) for item in decide(node(), [(read,)]).refusals] == [
        f"an object may have {MOST_LABELS} labels, and this one has 7 more"
    ]
    objects = tuple(
        of(name=f"o{one}", labels={f"v{one}.io/k{number}": "1" for number in range(400)}) for one in range(3)
    )
    made = decide(node(), [objects])
    assert len(made.labels) == MOST_LABELS_OF_A_NODE
    assert len(made.refusals) == 1200 - MOST_LABELS_OF_A_NODE


def test_objects_of_a_node_are_bounded() -> None:
    """Those that come first count, in all namespaces together; each of the others is told so once."""
    some = [of(name=f"o{number:03}", labels={f"v.io/k{number}": "1", "v.io/j": "1"}) for number in range(30)]
    other = of(namespace="b", labels={"v.io/b": "1"})
    made = decide(node(), [some, (other,)])
    assert len(made.labels) == MOST_OBJECTS_OF_A_NODE + 1
    assert [str(item.feature) for item in made.refusals] == [*(f"a/o{number:03}" for number in range(20, 30)), "b/x"]
    assert "v.io/b" in decide(node(), [(other,), some]).labels


def test_only_what_is_needed_of_an_object_is_kept() -> None:
    """No features; long keys and values are cut, and refused afterwards; what is no text is dropped."""
    labels = {"x" * 5000: "1", "v.io/k": "y" * 5000, "v.io/n": "1"}
    obj = node_feature("a", "x", "n", labels, uid="u")
    obj["spec"]["labels"]["v.io/number"] = 4
    read = read_node_feature(obj)
    assert read is not None
    assert max(map(len, read.labels)) == 318
    assert max(map(len, read.labels.values())) == 64
    assert decide(node(), [(read,)]).labels == {"v.io/n": "1"}


@pytest.mark.parametrize("spec", [None, {}, {"labels": None}, {"labels": []}, "text"], ids=str)
def test_an_object_without_labels_is_one_without_labels(spec: object) -> None:
    """Definitions of other versions may allow more."""
    obj = node_feature("a", "x", "n", {}, uid="u") | {"spec": spec}
    read = read_node_feature(obj)
    assert read is not None
    assert dict(read.labels) == {}
    del obj["metadata"]["labels"]
    assert read_node_feature(obj) is None


keys = st.sampled_from(
    (
        "gpu",
        f"{FEATURE}/gpu",
        "v.io/a",
        "v.io/b",
        "driverwright.io/x.ready",
        "kubernetes.io/x",
        f"{FEATURE}/kernel-version.full",
    )
)
values = st.sampled_from(("1", "2", "", "a b"))
features = st.builds(
    of, namespace=st.just("a"), name=st.sampled_from("xyz"), labels=st.dictionaries(keys, values, max_size=4)
)
views = st.lists(
    st.one_of(st.none(), st.lists(features, max_size=3, unique_by=lambda item: item.name).map(tuple)), max_size=3
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a node whose labels have owners."""
    labels = draw(st.dictionaries(keys, st.sampled_from(("1", "2")), max_size=4))
    picked = {name: {key for key in labels if draw(st.booleans())} for name in ("worker", "ours")}
    return node(labels, **picked)


@given(nodes(), views)
def test_whatever_is_given_the_rules_hold(some: Node, given_views: list[View]) -> None:
    """Never a key that is reserved or somebody else's with another value; nothing unknown goes; the order decides."""
    made, ours = decide(some, given_views), applied(some)
    theirs = {key for owner in some.label_owners if owner.manager == "nfd-worker" for key in owner.keys}
    objects = [item for view in given_views if view is not None for item in sorted(view, key=lambda one: one.name)]
    for key, value in made.labels.items():
        if None in given_views and ours.get(key) == value:
            continue
        assert not key.startswith(("driverwright.io/", "kubernetes.io/", f"{FEATURE}/kernel"))
        assert key not in theirs or some.labels[key] == value
        if key in theirs and ours.get(key) == value:
            continue
        names = (key, key.removeprefix(f"{FEATURE}/"))
        assert any(item.labels.get(name) == value for item in objects for name in names)
    refused = {(id(item.feature), item.key) for item in made.refusals}
    for item in objects:
        for name in item.labels:
            key = name if "/" in name else f"{FEATURE}/{name}"
            assert (id(item), key) in refused or key in made.labels
    if None in given_views:
        assert made.labels.keys() >= ours.keys()
    elif not theirs:
        # What comes later takes nothing from what comes first.
        assert made.labels.items() >= decide(some, given_views[:1]).labels.items()
