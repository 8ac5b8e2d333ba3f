"""Processes that have loaded the test library."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine

NewChild = Callable[[FakeMachine], NvmlChild]


@pytest.fixture
def new_child(library: Path) -> Iterator[NewChild]:
    """Give a function that starts a process on a machine."""
    with ExitStack() as stack:
        yield lambda machine: stack.enter_context(NvmlChild(library, machine.environment()))
