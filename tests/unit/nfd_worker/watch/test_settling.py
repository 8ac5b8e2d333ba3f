"""What comes is wanted at once, what goes is wanted a while longer."""

import pytest

from feature_rules.model import Taint
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.watch.schedule import NEVER
from nfd_worker.watch.settling import Settling

T0 = 1000.0
GRACE = 60.0
TAINT = Taint("v.io/t", "1", "NoSchedule")
FULL = NodeContent({"a": "1", "b": "1"}, {"n": "1"}, {"r": "2"}, (TAINT,))


def settle(settling: Settling, content: NodeContent, now: float) -> NodeContent:
    """Settle content that nothing is recorded of."""
    return settling.settle(content, {}, now, GRACE)[0]


def settled(content: NodeContent = FULL) -> Settling:
    """Make one to which this content is old."""
    settling = Settling()
    assert settle(settling, content, T0 - 100) == content
    return settling


def test_an_addition_and_a_change_are_wanted_at_once() -> None:
    """And nothing has to be looked at again."""
    settling = settled()
    more = NodeContent({"a": "2", "b": "1", "c": "1"}, {"n": "2"}, {"r": "3"}, (TAINT._replace(value="2"),))
    assert settle(settling, more, T0) == more
    assert settling.due == NEVER


@pytest.mark.parametrize(
    "less",
    [
        pytest.param(FULL._replace(labels={"a": "1"}), id="label"),
        pytest.param(FULL._replace(annotations={}), id="annotation"),
        pytest.param(FULL._replace(extended_resources={}), id="extended resource"),
        pytest.param(FULL._replace(taints=()), id="taint"),
        pytest.param(NodeContent(), id="everything"),
    ],
)
def test_a_removal_is_wanted_when_it_has_settled(less: NodeContent) -> None:
    """Other cycles in between neither hasten nor put it off."""
    settling = settled()
    assert settle(settling, less, T0) == FULL
    assert settling.due == T0 + GRACE
    assert settle(settling, less, T0 + GRACE / 2) == FULL
    assert settling.due == T0 + GRACE
    assert settle(settling, less, T0 + GRACE) == less
    assert settling.due == NEVER


def test_a_file_that_is_written_anew_does_not_make_its_label_disappear() -> None:
    """What comes back within the moment was never away; its new value counts."""
    settling = settled()
    settle(settling, FULL._replace(labels={"b": "1"}), T0)
    back = FULL._replace(labels={"a": "2", "b": "1"})
    assert settle(settling, back, T0 + 30) == back
    assert settle(settling, FULL._replace(labels={"b": "1"}), T0 + 50).labels == {"a": "2", "b": "1"}
    assert settling.due == T0 + 50 + GRACE


def test_what_is_held_and_what_comes_are_there_together_and_sorted() -> None:
    """Equal content makes equal requests."""
    settling = settled()
    found = settle(settling, FULL._replace(labels={"c": "1", "b": "1"}), T0)
    assert list(found.labels.items()) == [("a", "1"), ("b", "1"), ("c", "1")]


def test_one_key_may_have_taints_of_several_effects() -> None:
    """Taints with the same key and different effects are removed independently."""
    other = TAINT._replace(effect="NoExecute")
    settling = settled(NodeContent(taints=(other, TAINT)))
    assert settle(settling, NodeContent(taints=(TAINT,)), T0).taints == (other, TAINT)
    assert settle(settling, NodeContent(taints=(TAINT,)), T0 + GRACE).taints == (TAINT,)


def test_what_made_it_is_recorded_as_long_as_it_is_held() -> None:
    """The origin of a label that is held back stays in the record."""
    settling = Settling()
    record = {"features.d/f": ("a",), "features.d/g": ("b",)}
    settling.settle(FULL, record, T0, GRACE)
    less = FULL._replace(labels={"b": "1"})
    assert settling.settle(less, {"features.d/g": ("b",)}, T0, GRACE) == (FULL, record)
    assert settling.settle(less, {"features.d/g": ("b",)}, T0 + GRACE, GRACE)[1] == {"features.d/g": ("b",)}


def test_without_a_grace_a_removal_is_wanted_at_once() -> None:
    """Some rather have labels that are true this moment."""
    settling = settled()
    assert settling.settle(NodeContent(), {}, T0, 0.0)[0] == NodeContent()
    assert settling.due == NEVER


def test_what_has_had_its_grace_goes_at_once_and_nothing_else_does() -> None:
    """What was missing before keeps its own time."""
    settling = settled()
    settle(settling, FULL._replace(labels={"a": "1"}), T0)
    found, _ = settling.settle(FULL._replace(labels={"a": "1"}, taints=()), {}, T0 + 10, GRACE, at_once=True)
    assert found == FULL._replace(taints=())
    assert settling.due == T0 + GRACE
