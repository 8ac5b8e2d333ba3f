"""The controller's real process, killed with SIGKILL at each of its writes: the next one ends in the same state.

API server, engine and registry are real; the kubelets of two nodes are played. Between the controller and both servers
stands a proxy that sees each write pass. It ends the process when the write is done and before it hears of that: the
hardest moment, and the same as before the next write. No finished key is built a second time.

By default one write of each kind is taken. ``KILL_EVERYWHERE=1`` takes every single one (many minutes).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from testbed.testbed import Testbed
from tests.support.real_parts.controller_life import Boundary, Json, Life, Parts

SIDE_BY_SIDE = 3
EVERYWHERE = os.environ.get("KILL_EVERYWHERE") == "1"


def _install(life: Life) -> None:
    life.apply("1.0.0")
    life.wait_for_version("1.0.0")


def _upgrade(life: Life) -> None:
    life.apply("2.0.0")
    life.wait_for_version("2.0.0")


STAGES: dict[str, Callable[[Life], None]] = {
    "install": _install,
    "upgrade": _upgrade,
    "move": Life.move_nodes,
    "delete": Life.delete,
}
LATER: dict[str, dict[str, tuple[str, ...]]] = {
    "upgrade and delete": {
        "upgrade": (
            "write events", "write the status", "tag the image", "write daemonsets", "post pods", "delete pods",
            "write nodes",
        ),
        "delete": ("write nodes", "delete daemonsets", "post pods", "delete pods", "write the finalizer"),
    },
    "kernel without a driver": {"move": ("delete daemonsets", "write nodes", "write the status")},
}  # fmt: skip
"""The stages that follow an installation in two sequences, and the boundaries at which each controller is killed.

Of an upgrade the pods that are posted and deleted are pull pods; those of the deletion unload.
Those of the push are taken in the installation.
"""


@pytest.fixture(scope="module")
def parts(control_plane_ground: Testbed, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """An API server, an engine and a registry."""
    return Parts.on(control_plane_ground, engine_ground, tmp_path_factory.mktemp("killed"))


def lived(
    parts: Parts, sequence: tuple[str, ...], kills: frozenset[Boundary] = frozenset()
) -> tuple[Life, dict[str, Json]]:
    """Live through a sequence; returns the state at the end of each stage."""
    life = parts.life(kills)
    try:
        return life, {stage: life.enter(stage, STAGES[stage]) for stage in sequence}
    finally:
        life.end()


def assert_nothing_was_lost(life: Life, told: dict[str, Json], reference: dict[str, Json]) -> None:
    """The same states, each image tagged once, and no key built again after its image was finished.

    An Event comes after the status that it is about: one whose controller was killed in between is not posted.
    """
    for stage, state in told.items():
        wanted = reference[stage]
        words = f"{life.name}: {stage}, killed at {[str(item) for item in life.killed]}"
        assert {**state, "news": wanted["news"]} == wanted, words
        assert set(state["news"]) <= set(wanted["news"]), words
    tagged = [boundary for boundary in life.writes if boundary.name == "tag the image"]
    assert len(tagged) == len(life.builds()), "every key was finished once"


INSTALLATION = {
    "write the finalizer",
    "post events",
    "write the status",
    "begin a blob",
    "push a blob",
    "push the manifest",
    "push the manifest of a document",
    "list a document",
    "tag the image",
    "write daemonsets",
    "write nodes",
}


@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.long)], ids=["one by one", "alone"])
def test_killed_at_any_write_of_an_installation(parts: Parts, each: bool) -> None:
    """At each boundary between a new driver and its ready nodes: at several in a life, or each in one of its own."""
    reference, states = lived(parts, ("install",))
    assert "TargetReady" in states["install"]["news"]
    every = [boundary for boundary in reference.writes if EVERYWHERE or boundary.number == 1]
    assert {item.name for item in every} >= INSTALLATION
    assert reference.builds().total() == 1

    def die(kills: list[Boundary]) -> None:
        life, told = lived(parts, ("install",), frozenset(kills))
        # How often a status is written depends on how fast the nodes are: a later one may not come.
        assert {item for item in kills if item.number == 1} <= set(life.killed) <= set(kills)
        assert_nothing_was_lost(life, told, states)
        finished = [item.name for item in life.writes].index("tag the image")
        in_vain = [item for item in life.killed if life.writes.index(item) < finished]
        assert life.builds().total() <= 1 + len(in_vain), [str(item) for item in life.killed]

    lives = len(every) if each else SIDE_BY_SIDE
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(die, (every[number::lives] for number in range(lives))))


@pytest.mark.long
def test_killed_again_and_again(parts: Parts) -> None:
    """Lives in which each boundary of the later stages is killed, one after the other, beside lives without a kill."""

    def compare(stages: dict[str, tuple[str, ...]]) -> None:
        sequence = ("install", *stages)
        kills = frozenset(Boundary(stage=stage, name=name, number=1) for stage in stages for name in stages[stage])
        with ThreadPoolExecutor(2) as two:
            undisturbed, disturbed = two.map(lambda kills: lived(parts, sequence, kills), (frozenset(), kills))
        assert undisturbed[0].killed == []
        assert set(disturbed[0].killed) == kills
        assert_nothing_was_lost(*disturbed, undisturbed[1])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compare, LATER.values()))


def test_killed_when_a_build_was_cancelled(parts: Parts) -> None:
    """Cancelled before its push and killed: what nobody needs any more is never finished, what they need is built."""
    life = parts.life()
    try:
        life.may_push.clear()
        life.apply("1.0.0")
        life.until("a build is verified", lambda: "verified dw_helper" in life.log())
        life.change_source()
        life.until("it is cancelled", lambda: "cancel build" in life.log())
        life.kill()
        life.may_push.set()
        life.wait_for_version("1.0.0")
        assert sorted(life.builds().values()) == [1, 1], "the one that was cancelled, and the one for the new source"
        assert [str(write) for write in life.writes if write.name == "tag the image"] == ["born: tag the image"]
        assert life.tags().count("documents") == len(life.tags()) - 1
    finally:
        life.end()
