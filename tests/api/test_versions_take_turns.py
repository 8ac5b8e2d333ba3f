"""Two versions of the controller take turns: an upgrade of the product and the way back, at rest and in whatever runs.

API server, registry and controllers are real; the kubelets of two nodes are played. The other version is what Git has
as ``DRIVERWRIGHT_BEFORE`` (a commit), or the last one before the changes of a Node had their present form.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.testbed import Testbed
from tests.api.test_killed_controller import assert_nothing_was_lost
from tests.api.test_killed_upgrade import SPEC, WORDS, install, upgrade
from tests.support.real_parts.controller_life import ROOT, Boundary, Json, Life, Parts

pytestmark = [pytest.mark.long]

BEFORE = os.environ.get("DRIVERWRIGHT_BEFORE", "0ab8abb7cd57")
FLAGS = ("--identity", "controller-0", "--resync-seconds", "1", "--retry-min-seconds", "1")
"""What that version has in place of ``--test-waits``."""
INSTALLED, UPGRADED, REMOVED = "install", "upgrade", "delete"
MOMENTS = {
    "as the wave begins": Boundary(stage=UPGRADED, name="node +wave", number=1),
    "in the middle of a wave": Boundary(stage=UPGRADED, name="node +wave", number=2),
    "as a drain begins": Boundary(stage=UPGRADED, name="node +lock", number=1),
    "in a drain": Boundary(stage=UPGRADED, name="evict a pod", number=1),
    "before a validation": Boundary(stage=UPGRADED, name="post pods validate", number=1),
    "as the nodes of a removal are unloaded": Boundary(stage=REMOVED, name="post pods unload", number=1),
    "in a removal": Boundary(stage=REMOVED, name="post pods unload", number=2),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the other version."""
    git = ("git", "-c", "safe.directory=*", "-C", str(ROOT))
    found = subprocess.run((*git, "archive", "--format=tar", BEFORE), capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"Git has no commit {BEFORE} here: {found.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("before")
    subprocess.run(("tar", "--extract", "--directory", str(folder)), input=found.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def parts(control_plane_ground: Testbed, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """An API server, an engine and a registry."""
    return Parts.on(control_plane_ground, engine_ground, tmp_path_factory.mktemp("turns"))


STAGES: dict[str, Callable[[Life], None]] = {INSTALLED: install, UPGRADED: upgrade, REMOVED: Life.delete}


def _lived(parts: Parts, *sources: Path, kills: frozenset[Boundary] = frozenset()) -> tuple[Life, dict[str, Json]]:
    """Live from the installation to the removal; returns the state at the end of each."""
    life = parts.life(kills, spec=SPEC, detail=True)
    life.sources = sources
    life.flags = {source: FLAGS for source in sources if source != ROOT}
    try:
        return life, {name: life.enter(name, do) for name, do in STAGES.items()}
    finally:
        life.end()


@pytest.fixture(scope="module")
def undisturbed(parts: Parts) -> dict[str, Json]:
    """What this version alone comes to."""
    return _lived(parts, ROOT)[1]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("is_upgrade", [True, False], ids=["to this version", "back to the one before"])
def test_what_one_version_began_the_other_one_ends(
    parts: Parts, before: Path, undisturbed: dict[str, Json], moment: Boundary, is_upgrade: bool
) -> None:
    """Labels, annotations, taints, pods, images and conditions are those of this version alone."""
    sources = (before, ROOT) if is_upgrade else (ROOT, before)
    life, states = _lived(parts, *sources, kills=frozenset({moment}))
    assert life.killed == [moment]
    assert_nothing_was_lost(life, states, undisturbed)


def test_at_rest_neither_version_writes_what_the_other_one_left(
    parts: Parts, before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There and back, twice: the same pods, no write but of status and Events, and these not for ever."""
    life = parts.life(spec=SPEC, detail=True)
    life.sources, life.flags = (before, ROOT, before, ROOT), {before: FLAGS}
    try:
        life.enter(INSTALLED, install)
        pods = {pod["metadata"]["uid"] for pod in life.nodes.pods()}
        nodes = life.state()["nodes"]
        for turn in ("to this version", "back", "to this version again"):
            known = len(life.writes)
            life.kill()
            life.settle()
            written = [boundary.name for boundary in life.writes[known:]]
            with capsys.disabled():
                print(f"\n{turn}: wrote {written}")
            assert set(written) <= WORDS
            assert {pod["metadata"]["uid"] for pod in life.nodes.pods()} == pods
            assert life.state()["nodes"] == nodes
    finally:
        life.end()
