"""The registry that images are pushed to."""

from collections.abc import Iterator

import pytest

from tests.support.driver_builder.scripted_registry import MemoryRegistry, ScriptedRegistry, scripted_registry


@pytest.fixture
def memory() -> MemoryRegistry:
    """What the registry keeps."""
    return MemoryRegistry()


@pytest.fixture
def server(memory: MemoryRegistry) -> Iterator[ScriptedRegistry]:
    """Serve the registry."""
    with scripted_registry(memory) as server:
        yield server
