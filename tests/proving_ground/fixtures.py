"""pytest fixtures: proving grounds of the parts that a test needs, one of each kind per session.

A test module uses them by importing the names, or a conftest by `from tests.proving_ground.fixtures import *`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.proving_ground.ground import ProvingGround
from tests.proving_ground.packages import why_unsupported

__all__ = ["control_plane_ground", "engine_ground", "ground"]


def _ground(
    request: pytest.FixtureRequest, *, control_plane: bool, nodes: bool, engine: bool
) -> Iterator[ProvingGround]:
    if reason := why_unsupported():
        pytest.skip(reason)
    failed_before = request.session.testsfailed
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ground = ProvingGround.start(control_plane=control_plane, nodes=nodes, engine=engine, host_node=nodes)
    try:
        yield ground
    finally:
        keep_logs = request.session.testsfailed > failed_before
        ground.down(keep_logs=keep_logs)
        if keep_logs:
            with capture.global_and_fixture_disabled():
                print(f"\nthe logs of the proving ground are kept in {ground.logs}", file=sys.stderr)


@pytest.fixture(scope="session")
def control_plane_ground(request: pytest.FixtureRequest) -> Iterator[ProvingGround]:
    """An API server with etcd and the controller manager; no scheduler, no nodes, no engine."""
    yield from _ground(request, control_plane=True, nodes=False, engine=False)


@pytest.fixture(scope="session")
def engine_ground(request: pytest.FixtureRequest) -> Iterator[ProvingGround]:
    """A container engine with the Debian base image, and a registry; no Kubernetes."""
    yield from _ground(request, control_plane=False, nodes=False, engine=True)


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest) -> Iterator[ProvingGround]:
    """All of it, with this machine as a node; guests are added by the tests that need them."""
    yield from _ground(request, control_plane=True, nodes=True, engine=True)
