"""What a node is given back, and what carries the demo's mark."""

from demo.removal import MARK, is_marked, lost_fields
from kube_api import names

MODEL = "feature.node.kubernetes.io/cpu-model.id"


def test_what_others_had_set_is_given_back() -> None:
    """A label that nfd-worker took over has its old value; one that others still own, or that is not ours, stays."""
    before = {
        "labels": {MODEL: "85", "a": "old", "mine": "1"},
        "annotations": {names.BOOT_ID_ANNOTATION: "x", "b": "1"},
    }
    left = {"labels": {"a": "old", "mine": "2"}, "annotations": {"b": "2"}}
    assert lost_fields(before, left, {MODEL, "a"}) == {
        "labels": {MODEL: "85"},
        "annotations": {names.BOOT_ID_ANNOTATION: "x"},
    }


def test_a_node_that_had_nothing_is_given_nothing() -> None:
    """No patch is sent then."""
    assert lost_fields({}, {}, {MODEL}) == {}
    assert lost_fields({"labels": {"x": "1"}}, {"labels": {"x": "1"}}, {MODEL}) == {}


def test_the_mark_is_a_label() -> None:
    """Other labels do not matter."""
    assert is_marked({"metadata": {"labels": {**MARK, "a": "b"}}})
    assert not is_marked({"metadata": {"labels": {"a": "b"}}})
    assert not is_marked({"metadata": {}})
