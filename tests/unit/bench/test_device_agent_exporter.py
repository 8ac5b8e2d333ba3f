"""The benchmark of the exporter measures what it says: pods of a shared GPU, beside the reference on the same GPUs."""

import asyncio
import tempfile
from pathlib import Path

from bench import device_agent_exporter


def test_ours_and_the_reference_are_measured_in_one_run() -> None:
    """With the container by itself before; every line has its figure."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is too long for sockets in folders
        found = asyncio.run(device_agent_exporter.measure(Path(folder), gpus=1, rest=0, scrapes=1))
    assert found.nvml.keys() == device_agent_exporter.part_of_nvml(found.ours.weights).keys()
    assert set(found.ours.weights) == {"agent", "nvml, supervisor", "nvml, child"}
    for weight in (*found.nvml.values(), *found.ours.weights.values(), *found.reference.weights.values()):
        assert 1 < weight.pss < 100
    assert found.ours.series > 4 * 4
    assert found.reference.series > 9
    assert [line.split("  ")[0] for line in device_agent_exporter.lines(found)][-4:] == [
        "times the reference", "a scrape", "a scrape of the reference", "times the reference"
    ]  # fmt: skip
