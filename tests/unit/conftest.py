"""What tests of several programs have in common."""

from pathlib import Path

import pytest

from tests.nvml import build
from tests.support.programs import require_program


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the test's NVML once."""
    require_program("gcc")
    return build(tmp_path_factory.mktemp("nvml"))
