"""The labels of nodes: a mapping like any other, whose keys are kept once."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from driver_builder.snapshot import node_labels
from driver_builder.snapshot.inventory import read_node
from driver_builder.snapshot.node_labels import NodeLabels

LABELS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=5)


@given(one=LABELS, other=LABELS, key=st.text(max_size=3))
def test_it_is_the_mapping_that_it_was_made_of(one: dict[str, str], other: dict[str, str], key: str) -> None:
    """To read, to list, to compare, in whichever order the labels were given."""
    labels = NodeLabels(one)
    assert labels == one
    assert one == labels
    assert dict(labels) == one == {**labels}
    assert len(labels) == len(one)
    assert labels.get(key) == one.get(key)
    assert (key in labels) == (key in one)
    assert (labels == NodeLabels(other)) == (one == other)
    assert labels == NodeLabels(dict(reversed(one.items())))
    assert hash(labels) == hash(NodeLabels(dict(reversed(one.items()))))


def test_nodes_with_the_same_keys_share_them() -> None:
    """As long as one of them is there; then they go."""
    given = [{"metadata": {"name": name, "labels": {"own.example/a": name, "own.example/b": ""}}} for name in "ab"]
    # What other tests have left goes first.
    gc.collect()
    before = len(node_labels._known)
    nodes = [read_node(obj) for obj in given]
    assert [node.labels["own.example/a"] for node in nodes] == ["a", "b"]
    assert len(node_labels._known) == before + 1
    del nodes
    gc.collect()
    assert len(node_labels._known) == before
