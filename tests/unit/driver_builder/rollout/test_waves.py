"""Waves: which nodes of a driver get the new image next."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rollout_settings import Order, RolloutSettings, Share, Strategy
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.nodes.standing import NodeStanding, Standing, TargetStanding
from driver_builder.rollout.wave_fleet import Seen
from driver_builder.rollout.waves import Decision, next_nodes
from tests.support.driver_builder.factories import NOW

S = Standing
ONE = RolloutSettings()


def standing(node: str, where: Standing, *, target: str = "t", **changes: Any) -> NodeStanding:
    """Make where a node stands."""
    return NodeStanding(node=node, target=target, standing=where, **changes)


def target(
    nodes: Mapping[str, Standing] | tuple[NodeStanding, ...], name: str = "t", *, settled: int = 0, **changes: Any
) -> TargetStanding:
    """Make a target whose DaemonSet is written."""
    if isinstance(nodes, Mapping):
        nodes = tuple(standing(node, where, target=name) for node, where in nodes.items())
    made = TargetStanding(target=name, fingerprint="new", is_written=True, settled=settled, nodes=nodes)
    return replace(made, **changes)


def decided(
    *targets: TargetStanding, settings: RolloutSettings = ONE, before: Wave | None = None, **changes: Any
) -> Decision:
    """Decide on targets."""
    now = changes.pop("now", NOW)
    return next_nodes(settings, Seen(targets=targets, **changes), before, now)


def chosen(decision: Decision) -> list[str]:
    """Name the nodes that are chosen."""
    return [node.node for node in decision.chosen]


def wave(decision: Decision) -> Wave:
    """Return the wave, which there is."""
    assert decision.wave is not None
    return decision.wave


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({"a": S.WORKING, "b": S.WORKING}, ["a"], id="the first by name"),
        pytest.param({"a": S.UPDATED, "b": S.WORKING}, ["b"], id="the next one"),
        pytest.param({"a": S.UNPROVEN, "b": S.WORKING}, [], id="one is not proven yet"),
        pytest.param({"a": S.WORKING, "b": S.SILENT}, ["b"], id="a silent one is unavailable already"),
        pytest.param({"a": S.WORKING, "b": S.SILENT, "c": S.SILENT}, ["b"], id="silent ones within the budget too"),
        pytest.param({"a": S.WORKING, "b": S.BOOTING}, [], id="one boots, with its own image"),
        pytest.param({"a": S.BROKEN, "b": S.WORKING}, ["a", "b"], id="a broken one loses nothing"),
        pytest.param({"a": S.NEW, "b": S.WORKING}, ["b"], id="a new node costs no budget"),
        pytest.param({"a": S.HELD, "b": S.WORKING}, ["b"], id="another driver's module proves nothing"),
        pytest.param({"a": S.UPDATED}, [], id="all done"),
    ],
)
def test_one_working_driver_is_replaced_at_a_time(nodes: Mapping[str, Standing], expected: list[str]) -> None:
    """Without settings one node at a time is without its driver, over all targets."""
    assert chosen(decided(target(nodes))) == expected


MANY = {f"n{number:02}": S.WORKING for number in range(30)}


@pytest.mark.parametrize(
    ("nodes", "last", "changes", "expected"),
    [
        pytest.param({"a": S.WORKING, "b": S.WORKING}, "a", {}, ["b"], id="another one goes first"),
        pytest.param({"a": S.WORKING, "b": S.WORKING}, "ab", {}, ["a"], id="all are waited for"),
        pytest.param({"a": S.WORKING, "b": S.UPDATED}, "a", {}, ["a"], id="the others are done"),
        pytest.param({"a": S.SILENT, "b": S.WORKING}, "a", {}, ["a"], id="a silent one is unavailable already"),
        pytest.param({"a": S.SILENT, "b": S.SILENT}, "a", {}, ["b"], id="of silent ones"),
        pytest.param(
            {"a": S.WORKING, "b": S.WORKING},
            "a",
            {"canary": frozenset("a"), "settings": RolloutSettings(canary_node_selector={"pool": "a"})},
            ["a"],
            id="the canary goes before all",
        ),
        pytest.param(
            {"a": S.WORKING, "b": S.WORKING},
            "a",
            {"settings": RolloutSettings(canary=Share(1))},
            ["b"],
            id="any node is canary",
        ),
        pytest.param(
            {"a": S.WORKING, "b": S.WORKING},
            "a",
            {"wanted": frozenset("a"), "settings": RolloutSettings(order=Order.NODE_LABEL)},
            ["a"],
            id="the only one with the label",
        ),
        pytest.param(MANY, list(MANY)[:21], {}, ["n00"], id="no more than twenty others are looked at"),
    ],
)
def test_nodes_where_a_drain_would_wait_for_pods_go_last(
    nodes: Mapping[str, Standing], last: Iterable[str], changes: dict[str, Any], expected: list[str]
) -> None:
    """Of those that the rules of the wave let go; where there is no other one they go all the same."""
    assert chosen(decided(target(nodes), last=frozenset(last), **changes)) == expected


def test_the_message_names_the_nodes_that_go_last() -> None:
    """Where that changes the order, and there alone."""
    words = "after the others, because a drain waits for pods there: a; "
    assert words in wave(decided(target({"a": S.WORKING, "b": S.WORKING}), last=frozenset("a"))).message
    assert "drain" not in wave(decided(target({"a": S.WORKING, "b": S.WORKING}), last=frozenset("ab"))).message


def test_the_image_comes_to_the_others_first() -> None:
    """In the order in which the nodes go; those that go last keep it where they have it."""
    found = decided(target({"a": S.WORKING, "b": S.WORKING, "c": S.WORKING}), last=frozenset("a"))
    assert (chosen(found), coming(found)) == (["b"], (["c", "a"], 1))
    assert [node.node for node in found.reserve] == ["c", "a"]


def test_the_budget_is_that_of_the_driver() -> None:
    """Nodes of all targets share it."""
    targets = (target({"a": S.UNPROVEN}, "t"), target({"b": S.WORKING}, "u"))
    assert chosen(decided(*targets)) == []


@pytest.mark.parametrize(
    ("share", "total", "expected"),
    [
        pytest.param(Share(2), 5, 2, id="a number"),
        pytest.param(Share(10, is_percent=True), 25, 3, id="a percentage is rounded up"),
        pytest.param(Share(1, is_percent=True), 5, 1, id="at least one"),
        pytest.param(Share(100, is_percent=True), 5, 5, id="all"),
    ],
)
def test_max_unavailable(share: Share, total: int, expected: int) -> None:
    """A number or a percentage of all nodes of the driver may be without it."""
    nodes = {f"n{number}": S.WORKING for number in range(total)}
    found = decided(target(nodes), settings=RolloutSettings(max_unavailable=share))
    assert (len(found.chosen), wave(found).max_unavailable) == (expected, expected)


def test_pods_wait_for_their_daemon_set() -> None:
    """A pod that is replaced before its DaemonSet is written would get the image of before."""
    assert chosen(decided(target({"a": S.WORKING, "b": S.BROKEN}, is_written=False))) == []


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param({"is_ready": False}, id="not Ready"),
        pytest.param({"is_cordoned": True}, id="cordoned"),
        pytest.param({"skips": True}, id="annotated"),
    ],
)
@pytest.mark.parametrize("where", [S.WORKING, S.SILENT, S.BROKEN, S.BOOTING])
def test_a_node_that_is_left_out_is_neither_touched_nor_waited_for(where: Standing, left_out: dict[str, Any]) -> None:
    """The others go on, and the status names it."""
    nodes = (standing("a", where, **left_out), standing("b", S.WORKING))
    found = decided(target(nodes))
    assert chosen(found) == ["b"]
    assert wave(found).left_out == 1
    assert "1 left out: a" in wave(found).message


def test_a_node_that_is_not_ready_with_the_new_image_is_waited_for() -> None:
    """Perhaps the new driver is why."""
    nodes = (standing("a", S.UNPROVEN, is_ready=False), standing("b", S.WORKING))
    assert chosen(decided(target(nodes))) == []


def test_an_annotation_leaves_out_a_node_that_failed() -> None:
    """That is how an admin lets a wave go on."""
    nodes = (standing("a", S.FAILED, skips=True), standing("b", S.WORKING))
    assert chosen(decided(target(nodes))) == ["b"]


def test_a_failure_halts_the_wave() -> None:
    """By default one is enough: nothing more is replaced, what is broken neither."""
    nodes = (standing("a", S.FAILED, why="LoadFailed: m"), standing("b", S.WORKING), standing("c", S.BROKEN))
    found = decided(target(nodes))
    assert chosen(found) == []
    assert (wave(found).phase, wave(found).failed) == (Phase.HALTED, 1)
    assert "it failed on a: LoadFailed: m" in wave(found).message


def test_a_node_that_works_again_is_answered_for() -> None:
    """It was broken for a moment when the wave began; from then on it is as all others."""
    first = decided(target({"a": S.BROKEN, "b": S.WORKING}))
    again = decided(target({"a": S.WORKING, "b": S.WORKING}), before=first.wave)
    assert (chosen(again), wave(again).failed_before) == (["a"], ())
    for after in (S.UNPROVEN, S.FAILED):
        assert chosen(decided(target({"a": after, "b": S.WORKING}), before=again.wave)) == []


def test_some_may_fail_within_the_budget() -> None:
    """A failed node is unavailable as well."""
    nodes = {"a": S.FAILED, "b": S.WORKING, "c": S.WORKING}
    settings = RolloutSettings(max_failed=Share(1), max_unavailable=Share(2))
    assert chosen(decided(target(nodes), settings=settings)) == ["b"]
    assert chosen(decided(target(nodes), settings=replace(settings, max_unavailable=Share(1)))) == []


MOVED: dict[str, Any] = {"can_return": True}


def test_a_node_that_may_fail_returns_at_once_and_the_next_one_goes() -> None:
    """It does not get the image another time, and is available again once that of before works there."""
    may_fail = RolloutSettings(max_failed=Share(1))
    nodes = (standing("a", S.FAILED, why="LoadFailed: m", **MOVED), standing("b", S.WORKING))
    first = decided(target(nodes), settings=may_fail)
    assert ([node.node for node in first.returned], chosen(first), first.busy) == (["a"], [], frozenset())
    assert (wave(first).phase, wave(first).failed_on) == (Phase.ROLLING, {"a": "LoadFailed: m"})
    nodes = (standing("a", S.UNPROVEN, moves=True), standing("b", S.WORKING))
    second = decided(target(nodes), settings=may_fail, before=first.wave)
    assert (chosen(second), second.busy, second.taken) == ([], frozenset("a"), frozenset("a"))
    nodes = (standing("a", S.WORKING, moves=True), standing("b", S.WORKING))
    third = decided(target(nodes), settings=may_fail, before=second.wave)
    assert (chosen(third), wave(third).unavailable, wave(third).failed) == (["b"], 0, 1)
    assert "back to the image of before, where it failed: a" in wave(third).message


@pytest.mark.parametrize(
    ("where", "refused"), [(S.UPDATED, "a: LoadFailed: m"), (S.FAILED, "a: LoadFailed: m")], ids=["the end", "too many"]
)
def test_a_wave_halts_after_the_last_node_that_may_fail(where: Standing, refused: str) -> None:
    """Also where no other node is left: what it did not bring to all nodes it has to say."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, failed_on={"a": "LoadFailed: m"})
    nodes = (standing("a", S.WORKING, moves=True), standing("b", where, why="n", **MOVED))
    found = decided(target(nodes), settings=RolloutSettings(max_failed=Share(1)), before=before)
    assert (wave(found).phase, wave(found).refused) == (Phase.HALTED, {"t": refused})
    assert [node.node for node in found.returned] == (["b"] if where is S.FAILED else [])


def test_a_node_fails_once_also_where_the_schema_drops_its_name() -> None:
    """The count and the node that returned are left: it does not get the image another time, and the wave goes on."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, returned=("a",), failed=1)
    nodes = (standing("a", S.WORKING, moves=True), standing("b", S.WORKING, moves=True))
    found = decided(target(nodes), settings=RolloutSettings(max_failed=Share(1)), before=before)
    assert (chosen(found), wave(found).phase, wave(found).failed) == (["b"], Phase.ROLLING, 1)


def test_a_node_that_returned_for_another_reason_may_fail() -> None:
    """An admin has undone the wave for a while, or the wave before failed there."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, returned=("a",))
    nodes = (standing("a", S.FAILED, why="m", **MOVED), standing("b", S.WORKING))
    found = decided(target(nodes), settings=RolloutSettings(max_failed=Share(1)), before=before)
    assert (wave(found).phase, wave(found).failed_on) == (Phase.ROLLING, {"a": "m"})


def test_a_wave_says_that_it_waits_for_a_node_with_the_image_of_before() -> None:
    """It is unavailable while neither image works there."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, failed_on={"a": "LoadFailed: m"})
    nodes = (standing("a", S.BROKEN, why="n", moves=True), standing("b", S.WORKING))
    found = decided(target(nodes), settings=RolloutSettings(max_failed=Share(1)), before=before)
    assert (chosen(found), wave(found).message.partition("; ")[0]) == ([], "waits for a: n")


def test_a_wave_whose_canaries_by_label_have_failed_halts() -> None:
    """Nobody else can prove the image."""
    settings = RolloutSettings(canary_node_selector={"tier": "test"}, max_failed=Share(1))
    before = Wave(phase=Phase.CANARY, started=NOW, targets={"t": "new"}, failed_on={"a": "LoadFailed: m"})
    nodes = (standing("a", S.WORKING, moves=True), standing("b", S.WORKING))
    found = decided(target(nodes), settings=settings, before=before, canary=frozenset("a"))
    assert (chosen(found), wave(found).phase) == ([], Phase.HALTED)
    assert "it failed on a: LoadFailed: m" in wave(found).message


def test_a_node_that_failed_and_is_gone_counts_as_failed() -> None:
    """A wave that finds too many halts, whoever is left."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, failed_on={"gone": "LoadFailed: m"})
    found = decided(target({"b": S.WORKING}), before=before)
    assert (chosen(found), wave(found).phase, wave(found).refused) == ([], Phase.HALTED, {})
    assert "it failed on gone: LoadFailed: m" in wave(found).message


def test_all_at_once_tries_what_has_failed_again() -> None:
    """Nothing has rules there."""
    before = Wave(phase=Phase.ROLLING, started=NOW, targets={"t": "new"}, failed_on={"a": "LoadFailed: m"})
    nodes = (standing("a", S.WORKING, moves=True),)
    found = decided(target(nodes), settings=RolloutSettings(strategy=Strategy.IMMEDIATE), before=before)
    assert (chosen(found), wave(found).failed_on) == (["a"], {})


def test_a_node_that_was_broken_before_halts_nothing() -> None:
    """A device that is dead is no failure of the new image."""
    first = decided(target({"a": S.BROKEN, "b": S.WORKING, "c": S.WORKING}))
    assert wave(first).failed_before == ("a",)
    then = decided(target({"a": S.FAILED, "b": S.UPDATED, "c": S.WORKING}), before=first.wave)
    assert chosen(then) == ["c"]


def test_a_wave_answers_for_what_it_broke() -> None:
    """Where the next image is to repair it, those nodes count as unavailable until they work again."""
    first = decided(target({"a": S.UNPROVEN, "b": S.WORKING}))
    then = decided(target({"a": S.BROKEN, "b": S.WORKING}, fingerprint="newer"), before=first.wave)
    assert wave(then).failed_before == ()
    assert chosen(then) == ["a"]
    assert chosen(decided(target({"a": S.UNPROVEN, "b": S.WORKING}, fingerprint="newer"), before=then.wave)) == []


def test_a_wave_answers_for_what_it_broke_while_the_next_image_is_built() -> None:
    """Until it is there nothing is known of its target, and what is known stays."""
    first = decided(target({"a": S.FAILED, "b": S.WORKING}))
    owed = {"t": (standing("a", S.UNPROVEN),)}
    building = decided(before=first.wave, imageless=owed)
    assert wave(building) == replace(wave(first), phase=Phase.WAITING, message="the next image is not there yet")
    then = decided(target({"a": S.BROKEN, "b": S.WORKING}, fingerprint="newer"), before=building.wave)
    assert (chosen(then), wave(then).failed_before) == (["a"], ())
    assert decided(before=first.wave).wave is None


def test_a_kernel_whose_image_comes_later_is_answered_for() -> None:
    """The next image of another kernel is there first: the node that the wave broke still counts."""
    start = decided(target({"a": S.WORKING}), target({"b": S.WORKING}, "u"))
    first = decided(target({"a": S.FAILED}), target({"b": S.WORKING}, "u"), before=start.wave)
    owed = {"t": (standing("a", S.UNPROVEN),), "other": (standing("x", S.UNPROVEN, target="other"),)}
    there = target({"b": S.WORKING}, "u", fingerprint="newer")
    second = decided(there, before=first.wave, now=NOW + 60, imageless=owed)
    assert (chosen(second), wave(second).started) == ([], NOW + 60)
    assert chosen(decided(there, before=second.wave, now=NOW + 70, imageless=owed)) == []
    joined = (target({"a": S.UPDATED}, fingerprint="newer"), there)
    third = decided(*joined, before=second.wave, now=NOW + 90)
    assert (chosen(third), wave(third).started) == (["b"], NOW + 60)


def test_a_wave_for_one_kernel_answers_for_the_other() -> None:
    """A node requests a rebuild while a node with another kernel fails: that one uses up the budget."""
    start = decided(target({"a": S.WORKING}), target({"b": S.WORKING}, "u"))
    first = decided(target({"a": S.FAILED}), target({"b": S.UPDATED}, "u"), before=start.wave)
    asking = (standing("b", S.WORKING, target="u", asked=True),)
    both = (target({"a": S.FAILED}), target(asking, "u", fingerprint="rebuilt"))
    second = decided(*both, before=first.wave, now=NOW + 60)
    assert (chosen(second), wave(second).started, wave(second).phase) == ([], NOW + 60, Phase.ROLLING)
    assert "waits for a" in wave(second).message
    repaired = (target({"a": S.UPDATED}), both[1])
    assert chosen(decided(*repaired, before=second.wave, now=NOW + 70)) == ["b"]


CANARY = RolloutSettings(canary=Share(1), soak_seconds=600.0, max_unavailable=Share(100, is_percent=True))


def test_a_canary_goes_alone() -> None:
    """The others wait for its proof, then for the end of the soak."""
    nodes = {"a": S.WORKING, "b": S.WORKING, "c": S.WORKING}
    first = decided(target(nodes), settings=CANARY)
    assert (chosen(first), wave(first).phase) == (["a"], Phase.CANARY)
    loading = decided(target({**nodes, "a": S.UNPROVEN}), settings=CANARY, before=first.wave)
    assert (chosen(loading), wave(loading).phase) == ([], Phase.CANARY)
    proven = decided(target({**nodes, "a": S.UPDATED}), settings=CANARY, before=loading.wave, now=NOW + 60)
    assert (chosen(proven), wave(proven).phase) == ([], Phase.SOAKING)
    assert (wave(proven).canary_proven, proven.requeue_at) == (NOW + 60, NOW + 660)
    soaked = decided(target({**nodes, "a": S.UPDATED}), settings=CANARY, before=proven.wave, now=NOW + 660)
    assert (chosen(soaked), wave(soaked).phase) == (["b", "c"], Phase.ROLLING)


def coming(decision: Decision) -> tuple[list[str], int]:
    """Name the nodes that are next, and how many of them get their image at once."""
    return [node.node for node in decision.coming], decision.pulls


def test_the_next_nodes_get_their_image_while_others_are_upgraded() -> None:
    """As many as may be without the driver; of a canary that is on its way nobody else gets anything."""
    nodes = {"a": S.UNPROVEN, "b": S.WORKING, "c": S.WORKING, "d": S.BROKEN}
    assert coming(decided(target(nodes))) == (["b", "c"], 1)
    assert coming(decided(target({**nodes, "a": S.UPDATED}))) == (["c"], 1)
    assert coming(decided(target(nodes), settings=CANARY)) == ([], 0)
    assert coming(decided(target({**nodes, "a": S.WORKING}), settings=CANARY)) == (["b", "c"], 1)
    assert coming(decided(target(nodes), settings=RolloutSettings(strategy=Strategy.IMMEDIATE))) == ([], 0)


def test_a_canary_that_loses_its_proof_soaks_anew() -> None:
    """The time counts from the moment when it works again."""
    proven = decided(target({"a": S.UPDATED, "b": S.WORKING}), settings=CANARY)
    lost = decided(target({"a": S.UNPROVEN, "b": S.WORKING}), settings=CANARY, before=proven.wave, now=NOW + 300)
    assert wave(lost).canary_proven is None
    again = decided(target({"a": S.UPDATED, "b": S.WORKING}), settings=CANARY, before=lost.wave, now=NOW + 400)
    assert again.requeue_at == NOW + 1000


def test_a_canary_that_fails_in_its_soak_halts_the_wave() -> None:
    """No other node gets the image."""
    proven = decided(target({"a": S.UPDATED, "b": S.WORKING}), settings=CANARY)
    failed = decided(target({"a": S.FAILED, "b": S.WORKING}), settings=CANARY, before=proven.wave, now=NOW + 700)
    assert (chosen(failed), wave(failed).phase) == ([], Phase.HALTED)


def test_the_canary_says_what_it_waits_for() -> None:
    """A node that has not proven it is named."""
    first = decided(target({"a": S.WORKING, "b": S.WORKING}), settings=CANARY)
    nodes = (standing("a", S.UNPROVEN, why="ErrImagePull"), standing("b", S.WORKING))
    waiting = decided(target(nodes), settings=CANARY, before=first.wave)
    assert "waits for a: ErrImagePull" in wave(waiting).message


def test_another_node_is_the_canary_where_one_may_fail() -> None:
    """Neither a failure that is allowed nor a node of another kernel takes the place of the canary."""
    settings = replace(CANARY, max_failed=Share(1))
    first = decided(target({"a": S.WORKING, "b": S.WORKING}), settings=settings)
    failed = (target({"a": S.FAILED, "b": S.WORKING}), target({"c": S.UNPROVEN}, "u"))
    assert chosen(decided(*failed, settings=settings, before=first.wave)) == ["b"]


def test_a_new_image_is_a_new_wave() -> None:
    """Its canary has to prove it again."""
    proven = decided(target({"a": S.UPDATED, "b": S.WORKING}), settings=CANARY)
    changed = target({"a": S.WORKING, "b": S.WORKING}, fingerprint="newer")
    found = decided(changed, settings=CANARY, before=proven.wave, now=NOW + 700)
    assert (chosen(found), wave(found).started, wave(found).canary_proven) == (["a"], NOW + 700, None)


def test_the_image_of_another_kernel_joins_the_wave() -> None:
    """Its build took longer; the canary is proven already."""
    first = decided(target({"a": S.UPDATED, "b": S.WORKING}), settings=CANARY)
    both = (target({"a": S.UPDATED, "b": S.WORKING}), target({"c": S.WORKING}, "u"))
    found = decided(*both, settings=CANARY, before=first.wave, now=NOW + 700)
    assert chosen(found) == ["b", "c"]
    assert (wave(found).started, set(wave(found).targets)) == (NOW, {"t", "u"})


def test_a_canary_by_labels() -> None:
    """All nodes with the labels go first, within the budget."""
    settings = RolloutSettings(canary_node_selector={"tier": "test"}, max_unavailable=Share(1))
    canary = frozenset("bc")
    first = decided(target(dict.fromkeys("abc", S.WORKING)), settings=settings, canary=canary)
    assert chosen(first) == ["b"]
    half = target({"a": S.WORKING, "b": S.UPDATED, "c": S.WORKING})
    assert chosen(decided(half, settings=settings, canary=canary, before=first.wave)) == ["c"]
    whole = target({"a": S.WORKING, "b": S.UPDATED, "c": S.UPDATED})
    assert chosen(decided(whole, settings=settings, canary=canary, before=first.wave)) == ["a"]


def test_labels_that_no_node_has_hold_the_wave() -> None:
    """Probably they are misspelt: nothing goes without its canary."""
    found = decided(target({"a": S.WORKING}), settings=RolloutSettings(canary_node_selector={"tier": "tset"}))
    assert (chosen(found), wave(found).phase) == ([], Phase.WAITING)
    assert "no node with the labels of canaryNodeSelector can prove the image" in wave(found).message


@pytest.mark.parametrize(
    "changes", [pytest.param({"is_cordoned": True}, id="cordoned"), pytest.param({"skips": True}, id="annotated")]
)
def test_a_canary_that_is_left_out_proves_nothing(changes: dict[str, Any]) -> None:
    """Without any proof the wave waits; one of two is enough."""
    settings = RolloutSettings(canary_node_selector={"tier": "test"})
    nodes = (standing("a", S.WORKING), standing("b", S.WORKING, **changes), standing("c", S.UPDATED))
    alone = decided(target(nodes), settings=settings, canary=frozenset("b"))
    assert (chosen(alone), wave(alone).phase) == ([], Phase.WAITING)
    assert chosen(decided(target(nodes), settings=settings, canary=frozenset("bc"))) == ["a"]


def test_a_canary_of_more_nodes_than_there_are() -> None:
    """All of them are enough; those that are left out are not among them."""
    settings = RolloutSettings(canary=Share(5), max_unavailable=Share(5))
    nodes = (standing("a", S.UPDATED), standing("b", S.WORKING, is_cordoned=True), standing("c", S.WORKING))
    assert chosen(decided(target(nodes), settings=settings)) == ["c"]


def test_nodes_go_when_an_admin_labels_them() -> None:
    """The budget holds all the same."""
    settings = RolloutSettings(order=Order.NODE_LABEL)
    nodes = target(dict.fromkeys("abc", S.WORKING))
    waiting = decided(nodes, settings=settings)
    assert (chosen(waiting), wave(waiting).phase) == ([], Phase.WAITING)
    assert chosen(decided(nodes, settings=settings, wanted=frozenset("bc"))) == ["b"]


def test_all_at_once() -> None:
    """The strategy ``immediate`` knows no budget, no canary and no failure."""
    settings = RolloutSettings(strategy=Strategy.IMMEDIATE, canary=Share(1))
    nodes = {"a": S.FAILED, "b": S.WORKING, "c": S.SILENT, "d": S.BROKEN, "e": S.UNPROVEN}
    assert chosen(decided(target(nodes), settings=settings)) == ["b", "c", "d"]


def test_a_node_that_asks_for_a_rebuild_does_not_wait_for_the_canary() -> None:
    """The admin named that node; it goes although it is cordoned, within the budget."""
    nodes = (standing("a", S.WORKING), standing("b", S.WORKING, asked=True, is_cordoned=True))
    first = decided(target(nodes), settings=replace(CANARY, canary_node_selector={"x": "y"}))
    assert chosen(first) == ["b"]


def test_a_node_that_asks_for_a_rebuild_gets_its_image_while_the_canary_is_on_its_way() -> None:
    """Otherwise it would wait for the canary; nobody else gets an image."""
    nodes = (standing("a", S.UNPROVEN), standing("b", S.WORKING, asked=True), standing("c", S.WORKING))
    found = decided(target(nodes), settings=replace(CANARY, max_unavailable=Share(2)))
    assert chosen(found) == ["b"]
    assert coming(found) == ([], 1)


def test_without_anything_to_replace_there_is_no_wave() -> None:
    """A first installation, and a driver at rest."""
    assert decided(target({"a": S.NEW, "b": S.UPDATED}, settled=7)).wave is None


def test_a_wave_ends_with_the_proof_of_its_last_node() -> None:
    """What was broken before, or is left out, does not keep it."""
    last = decided(target({"a": S.WORKING, "b": S.BROKEN}))
    unproven = decided(target({"a": S.UNPROVEN, "b": S.FAILED}), before=last.wave)
    assert wave(unproven).phase is Phase.ROLLING
    assert decided(target({"a": S.UPDATED, "b": S.FAILED}), before=unproven.wave).wave is None
