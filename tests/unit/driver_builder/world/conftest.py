"""Whole stories are played with the cluster followed by watches; in ``make test-long`` it is listed as well."""

from collections.abc import Iterator

import pytest

from tests.support.driver_builder.model_world import World

_LISTED = pytest.param(False, id="listed", marks=pytest.mark.long)


@pytest.fixture(autouse=True, params=[_LISTED, pytest.param(True, id="followed")], scope="module")
def how_the_cluster_is_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say how the controller of each world knows its cluster."""
    World.is_followed = request.param
    yield
    World.is_followed = False
