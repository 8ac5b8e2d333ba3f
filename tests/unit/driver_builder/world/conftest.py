"""Whole stories are played twice: the cluster listed for each reconcile, and followed by watches."""

from collections.abc import Iterator

import pytest

from tests.support.driver_builder.model_world import World


@pytest.fixture(autouse=True, params=[False, True], ids=["listed", "followed"], scope="module")
def how_the_cluster_is_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say how the controller of each world knows its cluster."""
    World.is_followed = request.param
    yield
    World.is_followed = False
