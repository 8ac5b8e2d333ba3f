"""The loader's node."""

from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import SHELLS, World


@pytest.fixture(params=SHELLS or [[]], ids=lambda words: " ".join(words[:1]))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Return a node without the driver and an image with edudrv for its kernel."""
    if not request.param:
        pytest.skip("neither busybox nor dash is here: apt-get install busybox-static")
    return World(tmp_path, request.param)
