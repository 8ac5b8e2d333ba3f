"""An upgrade with everything that a node goes through, killed at each of its writes, each in a life of its own.

As :mod:`tests.api.test_killed_controller`; here the wave also drains its nodes (lock, taint, a paused label, evictions)
and validates them. The pod that uses the driver is real as an object, so the API server evicts it.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.api.test_killed_controller import assert_nothing_was_lost
from tests.support.real_parts.controller_life import Boundary, Json, Life, Parts
from tests.support.real_parts.played_nodes import USER

pytestmark = [pytest.mark.long]

SIDE_BY_SIDE = 4
"""They mostly wait."""
PAUSED = "example.com/edu.deploy.plugin"
SPEC: Json = {
    "validation": {"image": "r.io/test:1", "command": ["/test"]},
    "rollout": {"canary": 1, "drain": {"podSelector": USER, "pauseLabels": [PAUSED], "deadline": "30m", "force": True}},
}
REGISTRY = frozenset(
    {
        "begin a blob", "push a blob", "push the manifest", "push the manifest of a document", "list a document",
    }
)  # fmt: skip
"""Each is taken in an installation; here they are the same ones."""
WORDS = frozenset({"write the status", "write events", "post events"})
"""What people read; nothing but a wave's memory is in it, so these are killed last."""


@pytest.fixture(scope="module")
def parts(control_plane_ground: Testbed, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """An API server, an engine and a registry."""
    return Parts.on(control_plane_ground, engine_ground, tmp_path_factory.mktemp("killed"))


def install(life: Life) -> None:
    """Have the first version of the driver on both nodes."""
    life.apply("1.0.0")
    life.wait_for_version("1.0.0")


def upgrade(life: Life) -> None:
    """Have the second version on both nodes, which users and a paused label have to leave."""
    for node in life.nodes.names():
        life.nodes.use(node)
        life.root.patch(NODES.path(name=node), {"metadata": {"labels": {PAUSED: "true"}}})
    life.apply("2.0.0")
    life.wait_for_version("2.0.0")
    life.wait_for_end_of_wave()


def _lived(parts: Parts, kills: frozenset[Boundary] = frozenset()) -> tuple[Life, dict[str, Json]]:
    """Live through an installation and an upgrade; returns the state at the end of each."""
    life = parts.life(kills, spec=SPEC, detail=True)
    try:
        states = {"install": life.enter("install", install), "upgrade": life.enter("upgrade", upgrade)}
        states["upgrade"]["users"] = len(life.nodes.users())
        states["upgrade"]["paused labels"] = list(life.nodes.ready_labels(PAUSED).values())
        return life, states
    finally:
        life.end()


def test_killed_at_any_write_of_an_upgrade(parts: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels, taint, lock, pods and status at the end are those of the upgrade that nobody disturbed."""
    reference, states = _lived(parts)
    assert states["upgrade"]["users"] == 0
    assert states["upgrade"]["paused labels"] == ["true", "true"]
    every = [item for item in reference.moments if item.stage == "upgrade" and item.name not in REGISTRY]
    every.sort(key=lambda item: item.name in WORDS)
    with capsys.disabled():
        print(f"\n{len(every)} writes of an upgrade", flush=True)

    def once(boundary: Boundary) -> tuple[bool, str]:
        """Live a life; returns whether it was killed, and what is wrong with its end."""
        try:
            life, told = _lived(parts, frozenset({boundary}))
            assert_nothing_was_lost(life, told, states)
            end = (bool(life.killed), "")
        except AssertionError as error:
            end = (True, f"{boundary}: {error}")
        with capsys.disabled():
            print(f"{boundary}: {end[1] or ('the same end' if end[0] else 'was not written')}", flush=True)
        return end

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        ends = dict(zip(every, pool.map(once, every), strict=True))
    killed = [boundary for boundary, (was_killed, _) in ends.items() if was_killed]
    with capsys.disabled():
        print(f"{len(killed)} of {len(every)} writes were the last ones of a controller", flush=True)
    assert [wrong for _, wrong in ends.values() if wrong] == []
    # How many times a status is written depends on how fast the nodes are.
    assert {item.name for item in killed} == {item.name for item in every}
