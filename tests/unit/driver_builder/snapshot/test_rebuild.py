"""Rebuild annotations: each new value rebuilds once, and never twice."""

import hashlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.rebuild_status import MAX_NODES_TOLD, Rebuilds, from_status
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.rebuild import MAX_TOKENS, NODES_HEARD_SECONDS, acknowledge
from tests.support.driver_builder.factories import OTHER_KERNEL, node, target

NOTHING = Rebuilds(requests={}, tokens={})
HERE, THERE = target(), target(OTHER_KERNEL)
TARGETS = {HERE: ("a", "b"), THERE: ("c",)}


def seen(
    known: Rebuilds = NOTHING, driver: str | None = None, later: float = NODES_HEARD_SECONDS, **nodes: str | None
) -> Rebuilds:
    """Acknowledge what is annotated, on the driver and on nodes by name, so much later than nodes were last heard."""
    return acknowledge(
        known,
        driver=driver,
        targets=TARGETS,
        nodes=tuple(node(name, rebuild=value) for name, value in nodes.items()),
        pods=lambda: {name: f"pod-of-{name}" for name in nodes},
        now=max(known.times.values(), default=0.0) + later,
    )


def digest(value: str) -> str:
    """Return what is kept of a value."""
    return "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:16]


def test_without_annotations_nothing_is_acknowledged() -> None:
    """Without a rebuild annotation there is no request and no token."""
    assert seen(a=None, b=None, c=None) == NOTHING
    assert NOTHING.token(HERE) == ""


def test_a_wish_on_the_driver_concerns_every_target() -> None:
    """A rebuild annotation on the DriverContainer gives every target the same token."""
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
    """Removing the annotation keeps the rebuilt image."""
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
    moved = acknowledge(once, driver=None, targets={THERE: ("a",)}, nodes=(node("a", OTHER_KERNEL, rebuild="1"),))
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
    """A target's token changes in exactly the reconciles in which one of its annotations has a new value."""
    known = NOTHING
    last: dict[str, str] = {}
    askers = {HERE: ("driver", "a", "b"), THERE: ("driver", "c")}
    for moment in history:
        wishes = dict(moment)
        after = seen(known, wishes.pop("driver"), NODES_HEARD_SECONDS, **wishes)
        news = {who for who, value in moment.items() if value is not None and last.get(who) != value}
        for one, who in askers.items():
            assert (after.token(one) != known.token(one)) is bool(news.intersection(who))
        last |= {who: value for who, value in moment.items() if value is not None}
        known = from_status(after.as_status())


def test_a_node_in_the_inventory_but_not_in_the_list_is_skipped() -> None:
    """A group may name a node that the list does not have; that is no wish."""
    nodes: list[Node] = []
    assert acknowledge(NOTHING, driver=None, targets=TARGETS, nodes=tuple(nodes)) == NOTHING


def test_a_node_that_is_gone_is_forgotten_and_its_tokens_stay() -> None:
    """Deleted nodes do not pile up in the status; the images that they asked for are still the wanted ones."""
    once = seen(driver="1", a="1", c="2")
    after = seen(once, driver="1", a=None)
    assert after.requests == {"DriverContainer": digest("1"), "Node/a": digest("1")}
    assert after.tokens == once.tokens


def test_a_value_is_kept_as_its_digest() -> None:
    """A node can write any value to itself; the status stays small, and what an earlier release kept is known."""
    once = seen(a="x" * 250_000)
    assert once.requests == {"Node/a": digest("x" * 250_000)}
    assert len(str(once.as_status())) < 500
    earlier = from_status({"requests": {"Node/a": "1", "DriverContainer": "2"}, "tokens": {HERE.id: "t"}})
    assert seen(earlier, driver="2", a="1") == earlier


def test_a_value_that_cannot_be_encoded_is_one_as_well() -> None:
    """Half of a surrogate pair comes in by JSON."""
    assert seen(a="\ud800").token(HERE) != ""


def test_nodes_of_a_target_are_heard_once_in_a_while() -> None:
    """A node that asks again and again has its target built once in ten minutes; all that ask by then are served."""
    once = seen(a="1")
    early = seen(once, a="2", b="1", later=NODES_HEARD_SECONDS - 1)
    assert early == replace(once, heard_at=once.times[HERE.id] + NODES_HEARD_SECONDS)
    later = seen(early, a="2", b="1")
    assert later.requests == {"Node/a": digest("2"), "Node/b": digest("1")}
    assert later.heard_at is None


def test_other_targets_are_heard_meanwhile() -> None:
    """The limit of one target is not that of another, and the driver's own annotation has none."""
    early = seen(seen(a="1"), driver="1", a="1", c="1", later=1)
    assert set(early.requests) == {"DriverContainer", "Node/a", "Node/c"}


def test_a_clock_that_went_back_holds_nothing_up_for_long() -> None:
    """A time in the future counts as now."""
    once = seen(a="1")
    ahead = replace(once, times={HERE.id: 1e12})
    found = acknowledge(ahead, driver=None, targets=TARGETS, nodes=(node("a", rebuild="2"),), now=5000.0)
    assert found.heard_at == 5000.0 + NODES_HEARD_SECONDS


def test_a_node_that_asked_is_pending_with_the_pod_it_had() -> None:
    """Until its pod is another one; the other nodes of its target are not."""
    once = seen(a="1", b=None)
    assert once.pending == {"a": "pod-of-a"}
    moved = acknowledge(once, driver=None, targets={THERE: ("c",)}, nodes=(node("a", rebuild="1"), node("c")))
    assert moved.pending == {}, "nothing is served on it any more"


def test_tokens_of_kernels_that_are_gone_do_not_pile_up() -> None:
    """The oldest go; those of today's targets and of the whole driver stay."""
    tokens = {f"6.1.{number}/debian:12/amd64": "t" for number in range(MAX_TOKENS + 5)}
    known = Rebuilds(requests={}, tokens={**tokens, HERE.id: "t", "*": "t"}, times=dict.fromkeys([*tokens][5:], 9.0))
    left = seen(known).tokens
    assert len(left) == MAX_TOKENS + 2
    assert set(left) == {*[*tokens][5:], HERE.id, "*"}


def test_the_pods_of_nodes_that_request_a_rebuild_are_listed() -> None:
    """By the digest, for as long as the request is known; of very many nodes those that wait come first."""
    once = seen(a="1", b=None)
    assert once.of_nodes(("a", "b")) == {"a": digest("1").removeprefix("sha256:")}
    many = [f"n{number:04}" for number in range(MAX_NODES_TOLD + 1)]
    known = Rebuilds(requests={f"Node/{name}": digest("1") for name in many}, tokens={}, pending={many[-1]: "uid"})
    told = known.of_nodes(many)
    assert len(told) == MAX_NODES_TOLD
    assert many[-1] in told
