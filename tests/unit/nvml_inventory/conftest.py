"""The test library, built once, and processes that have loaded it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nvml import build
from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.support.programs import require_program

NewChild = Callable[[FakeMachine], NvmlChild]


@pytest.fixture(scope="package")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library once."""
    require_program("gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def new_child(library: Path) -> Iterator[NewChild]:
    """Give a function that starts a process on a machine."""
    with ExitStack() as stack:
        yield lambda machine: stack.enter_context(NvmlChild(library, machine.environment()))
