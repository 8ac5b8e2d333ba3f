"""The loader's node."""

from pathlib import Path

import pytest

from tests.support.programs import require_program
from tests.support.real_parts.loader_world import SHELLS, World


def _shells() -> list[object]:
    """Return the shells; the first is the one that nodes have, and the others are for `make test-long`."""
    shells = SHELLS or [["busybox", "sh"]]
    return [
        pytest.param(words, id=" ".join(words[:1]), marks=[] if words is shells[0] else [pytest.mark.long])
        for words in shells
    ]


@pytest.fixture(params=_shells())
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Return a node without the driver and an image with edudrv for its kernel."""
    require_program(request.param[0])
    return World(tmp_path, request.param)
