"""Rebuild annotations: each new value rebuilds once, and never twice."""

from hypothesis import given
from hypothesis import strategies as st

from driver_builder.planning.inventory import Node
from driver_builder.planning.rebuild import Rebuilds, acknowledge, from_status
from tests.unit.driver_builder.factories import OTHER_KERNEL, node, target

NOTHING = Rebuilds(requests={}, tokens={})
HERE, THERE = target(), target(OTHER_KERNEL)
TARGETS = {HERE: ("a", "b"), THERE: ("c",)}


def seen(known: Rebuilds = NOTHING, driver: str | None = None, **nodes: str | None) -> Rebuilds:
    """Acknowledge what is annotated: on the driver, and on nodes by name."""
    return acknowledge(
        known, driver=driver, targets=TARGETS, nodes=[node(name, rebuild=value) for name, value in nodes.items()]
    )


def test_without_annotations_nothing_is_acknowledged() -> None:
    """No wish, no token."""
    assert seen(a=None, b=None, c=None) == NOTHING
    assert NOTHING.token(HERE) == ""


def test_a_wish_on_the_driver_concerns_every_target() -> None:
    """One token for all."""
    after = seen(driver="1")
    assert after.token(HERE) == after.token(THERE) != ""


def test_a_wish_on_a_node_concerns_its_target() -> None:
    """The other targets keep their images."""
    after = seen(a="1")
    assert after.token(HERE) != ""
    assert after.token(THERE) == ""


def test_the_same_value_again_changes_nothing() -> None:
    """An acknowledged value is done with, on the driver as on a node."""
    once = seen(driver="1", a="1")
    assert seen(once, driver="1", a="1") == once


def test_taking_the_annotation_away_changes_nothing() -> None:
    """What was built stays."""
    once = seen(driver="1", a="1")
    assert seen(once, a=None) == once


def test_putting_the_same_value_back_changes_nothing() -> None:
    """Only a new value is a new wish."""
    once = seen(driver="1")
    assert seen(seen(once), driver="1") == once


def test_a_new_value_is_a_new_token() -> None:
    """Going back to an older value is new as well."""
    first = seen(driver="1")
    second = seen(first, driver="2")
    third = seen(second, driver="1")
    assert len({first.token(HERE), second.token(HERE), third.token(HERE)}) == 3


def test_two_nodes_of_one_target_ask_separately() -> None:
    """Each node's value counts by itself."""
    first = seen(a="1")
    assert seen(first, a="1", b="1").token(HERE) != first.token(HERE)


def test_a_node_that_moves_with_its_old_value_rebuilds_nothing() -> None:
    """An acknowledged node that boots another kernel does not rebuild that kernel's image."""
    once = seen(a="1")
    moved = acknowledge(once, driver=None, targets={THERE: ("a",)}, nodes=[node("a", OTHER_KERNEL, rebuild="1")])
    assert moved == once
    assert moved.token(THERE) == ""


def test_a_node_outside_the_targets_is_not_asked() -> None:
    """A node that the driver does not select cannot make it rebuild."""
    assert seen(elsewhere="1") == NOTHING


def test_a_restart_before_the_status_was_written_makes_the_same_tokens() -> None:
    """The token is a function of what is known and what is annotated, of nothing else."""
    once = seen(driver="1")
    assert seen(once, driver="2", a="x", c="y") == seen(once, driver="2", a="x", c="y")


def test_the_status_keeps_everything() -> None:
    """What ``as_status`` writes ``from_status`` reads; a missing status is nothing acknowledged."""
    once = seen(driver="1", a="1")
    assert from_status(once.as_status()) == once
    assert from_status(None) == from_status({}) == NOTHING


values = st.none() | st.sampled_from(["1", "2", "3"])


@given(st.lists(st.fixed_dictionaries({"driver": values, "a": values, "b": values, "c": values}), max_size=6))
def test_tokens_change_exactly_when_a_new_value_is_seen(history: list[dict[str, str | None]]) -> None:
    """Over any history a target's token changes in exactly the passes in which one of its askers has a new value."""
    known = NOTHING
    last: dict[str, str] = {}
    askers = {HERE: ("driver", "a", "b"), THERE: ("driver", "c")}
    for moment in history:
        wishes = dict(moment)
        after = seen(known, driver=wishes.pop("driver"), **wishes)
        news = {who for who, value in moment.items() if value is not None and last.get(who) != value}
        for one, who in askers.items():
            assert (after.token(one) != known.token(one)) is bool(news.intersection(who))
        last |= {who: value for who, value in moment.items() if value is not None}
        known = from_status(after.as_status())


def test_a_node_in_the_inventory_but_not_in_the_list_is_skipped() -> None:
    """A group may name a node that the list does not have; that is no wish."""
    nodes: list[Node] = []
    assert acknowledge(NOTHING, driver=None, targets=TARGETS, nodes=nodes) == NOTHING


def test_a_node_that_is_gone_is_forgotten_and_its_tokens_stay() -> None:
    """Deleted nodes do not pile up in the status; the images that they asked for are still the wanted ones."""
    once = seen(driver="1", a="1", c="2")
    after = seen(once, driver="1", a=None)
    assert after.requests == {"DriverContainer": "1", "Node/a": "1"}
    assert after.tokens == once.tokens
