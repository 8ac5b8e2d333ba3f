"""Tests that every container engine must pass: the tree's, sid's, and sid's as Docker Engine 29 starts by default.

And a second registry, beside those that the files of tests start.
"""

import pytest

from testbed import engine_kind
from testbed.crane_registry import SUITE, CraneRegistry
from testbed.engine_kind import EngineKind
from testbed.errors import ArchiveError
from testbed.ports import free_ports
from testbed.process import Processes
from testbed.progress import Silent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the marker ``every_engine`` with each engine: the tree's in every run, newer ones in long ones.

    With ``always=True`` the newest is in every run, too.
    """
    marker = metafunc.definition.get_closest_marker("every_engine")
    if marker is None or "engine_ground" not in metafunc.fixturenames:
        return
    newest = [] if marker.kwargs.get("always") else [pytest.mark.long]
    engines = [
        pytest.param(engine_kind.OF_TREE, id="engine of the tree"),
        _newer(engine_kind.OF_SID, pytest.mark.long),
        _newer(engine_kind.AS_29, *newest),
    ]
    metafunc.parametrize("engine_ground", engines, indirect=True, scope="session")


def _newer(kind: EngineKind, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(kind, id=f"engine of {kind.name}", marks=[pytest.mark.new_engine, *marks])


@pytest.fixture(scope="module")
def crane(processes: Processes) -> CraneRegistry:
    """Crane's registry; ``processes`` are those of the file."""
    made = CraneRegistry(processes, free_ports(1)[0])
    try:
        made.bring_up(Silent())
    except ArchiveError as error:
        pytest.skip(f"no crane of {SUITE}: {error}")
    return made
