"""What the tests of GPUs have in common."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 bytes.

    A thread of a source that was cancelled may write a last file while the folder goes.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)
