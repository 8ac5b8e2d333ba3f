"""The benchmark of the whole pod has all parts of it at work before it weighs them."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from bench import device_agent_pod

pytestmark = pytest.mark.long


def test_all_parts_are_measured_in_one_run() -> None:
    """A layout is made, limits are kept by the driver, and pods on whole GPUs and on instances are on the page."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is too long for sockets in folders
        found = asyncio.run(device_agent_pod.measure(Path(folder), gpus=1, mig=2, rest=0, scrapes=1))
    assert set(found.ours.weights) == {"agent", "nvml, supervisor", "nvml, child"}
    for weight in (*found.nvml.values(), *found.ours.weights.values(), *found.reference.weights.values()):
        assert 1 < weight.pss < 100
    assert found.ours.series > 4 + 14
    assert found.reference.series > 9
