"""pytest fixtures: one cluster and one set of parts for a whole session, whatever its tests ask for.

`tests/conftest.py` makes them known to every test; a test asks for them by name and imports nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pytest

from testbed import engine_kind
from testbed.custom_resources import CustomResources
from testbed.engine_kind import EngineKind
from testbed.errors import ArchiveError, UnsupportedMachineError
from testbed.newer_kubernetes import NewerKubernetes, NotBuiltError, ensure_newer_kubernetes
from testbed.packages import why_unsupported
from testbed.progress import PlainLines, warn
from testbed.testbed import Testbed
from tools import warm_layers

__all__ = [
    "control_plane_ground", "custom_resources", "engine_ground", "ground", "newer_kubernetes", "own_control_plane",
    "own_ground", "parts_ground", "scheduling_ground",
]  # fmt: skip

running: list[Testbed] = []
"""The testbeds of this session that are up: what is looked at when a test fails."""


def _ground(
    request: pytest.FixtureRequest,
    *,
    control_plane: bool,
    nodes: bool,
    engine: bool,
    admission: Sequence[str] = (),
    kind: EngineKind = engine_kind.OF_TREE,
) -> Iterator[Testbed]:
    if reason := why_unsupported():
        pytest.skip(reason)
    failed_before = request.session.testsfailed
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ground = Testbed.start(
            control_plane=control_plane,
            nodes=nodes,
            engine=engine,
            host_node=nodes,
            admission=admission,
            kind=kind,
            preparation=warm_layers.preparation() if engine and kind is engine_kind.OF_TREE else None,
        )
    running.append(ground)
    try:
        yield ground
    finally:
        running.remove(ground)
        keep_logs = request.session.testsfailed > failed_before
        ground.down(keep_logs=keep_logs)
        if keep_logs:
            with capture.global_and_fixture_disabled():
                print(f"\nthe logs of the testbed are kept in {ground.logs}", file=sys.stderr)


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """The cluster: all of it, with this machine as a node; guests are added by the tests that need them."""
    yield from _ground(request, control_plane=True, nodes=True, engine=True)


@pytest.fixture(scope="module")
def own_ground(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """The same for one file alone: for tests that delete what others share."""
    yield from _ground(request, control_plane=True, nodes=True, engine=True)


@pytest.fixture(scope="session")
def parts_ground(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """The parts that the session's tests need: a control plane without scheduler and nodes, an engine, a registry."""
    needed = _needed(request)
    engine = "engine_ground" in needed and "ground" not in needed
    yield from _ground(request, control_plane="control_plane_ground" in needed, nodes=False, engine=engine)


def _needed(request: pytest.FixtureRequest) -> set[str]:
    """Return the fixtures that the session's tests ask for."""
    return {name for item in request.session.items for name in getattr(item, "fixturenames", ())}


@pytest.fixture(scope="session")
def control_plane_ground(parts_ground: Testbed) -> Testbed:
    """An API server with etcd and the controller manager; no scheduler, no nodes."""
    return parts_ground


@pytest.fixture(scope="session")
def scheduling_ground(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """An API server with the scheduler, which tolerates the taint of a resource that a pod requests; no nodes."""
    yield from _ground(request, control_plane=True, nodes=True, engine=False, admission=["ExtendedResourceToleration"])


@pytest.fixture(scope="module")
def own_control_plane(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """The same for one file alone: for tests that delete what others share."""
    yield from _ground(request, control_plane=True, nodes=False, engine=False)


@pytest.fixture(scope="session")
def engine_ground(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """A container engine with the Debian base image, and a registry: the cluster's, where the session has one.

    With an engine's kind as its parameter: such an engine, which begins with the base image alone.
    """
    kind: EngineKind = getattr(request, "param", engine_kind.OF_TREE)
    if not kind.of_sid or why_unsupported():
        yield request.getfixturevalue("ground" if "ground" in _needed(request) else "parts_ground")
        return
    try:
        with PlainLines().step(f"Provide the container engine of {engine_kind.SUITE}") as step:
            engine_kind.programs(step)
    except (ArchiveError, UnsupportedMachineError) as error:
        pytest.skip(f"no container engine of {engine_kind.SUITE}: {error}")
    yield from _ground(request, control_plane=False, nodes=False, engine=True, kind=kind)


@pytest.fixture(scope="session")
def newer_kubernetes(request: pytest.FixtureRequest) -> NewerKubernetes:
    """Programs with the rules of a newer Kubernetes, of Debian sid; where they cannot be had, the reason is printed."""
    if reason := why_unsupported():
        pytest.skip(reason)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            found = ensure_newer_kubernetes(PlainLines())
        except NotBuiltError as error:
            warn(f"nothing newer than the testbed's Kubernetes judges what is tested: {error}")
            pytest.skip(f"no rules of a newer Kubernetes: {error}")
        warn(f"rules of {found}")
    return found


@pytest.fixture(scope="session")
def custom_resources(
    request: pytest.FixtureRequest, newer_kubernetes: NewerKubernetes, control_plane_ground: Testbed
) -> Iterator[CustomResources]:
    """A newer Kubernetes' server of custom resources, beside the session's API server."""
    made = CustomResources(control_plane_ground, newer_kubernetes)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        made.bring_up(PlainLines())
    yield made
    made.end()
