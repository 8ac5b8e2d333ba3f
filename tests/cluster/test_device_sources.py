"""A real kubelet and devices of another source than files: links, mounts, and resources that come and go.

The tests build on each other, in the order they are written in.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import places
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, documents, path_of
from tests.support.real_parts.device_agent import Place

pytestmark = pytest.mark.chain

RESOURCE = "driverwright.io/linked"
PAIRS = {0: 2, 1: 3, 2: 0, 3: 1}
READ = 'exec 2>&1; cat /opt/linked/text; touch /opt/linked/text; echo "units $UNITS"; exec sleep 3600'


class Source:
    """The file that a source reads."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.place = place
        self.path = folder / "units.json"
        self._text = folder / "text"
        self._text.write_text("it is mounted\n")

    def show(self, **resources: list[int]) -> None:
        """Have these resources, of these units."""
        units = {
            f"driverwright.io/{name}": [
                {
                    "id": f"unit-{number}",
                    "links": {f"unit-{PAIRS[number]}": 1},
                    "mounts": {str(self._text): "/opt/linked/text"},
                    "environment": {"UNITS": str(number)},
                }
                for number in numbers
            ]
            for name, numbers in resources.items()
        }
        whole = self.path.with_suffix(".new")
        whole.write_text(json.dumps(units))
        whole.replace(self.path)


@pytest.fixture(scope="module")
def source(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """Run an agent beside this machine's kubelet; its source has no resource at first."""
    place = Place(ground, ground.host_node_name, RESOURCE)
    for obj in documents("namespace.yaml"):
        place.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    made = Source(tmp_path_factory.mktemp("source"), place)
    made.show()
    # The kubelet's folders are the testbed's own; the path of a socket in them is too long but for a link.
    folder = tmp_path_factory.mktemp("k") / "p"
    folder.symlink_to(
        places.find_ground(ground.host_node_name.removeprefix("host-"))
        / "private"
        / "var-lib-kubelet"
        / "device-plugins"
    )
    command = [sys.executable, "-m", "tests.support.real_parts.source_agent", str(made.path), str(folder)]
    with subprocess.Popen(command) as process:
        yield made
        process.terminate()
    assert process.returncode == 0


def test_a_resource_comes_while_the_agent_runs(source: Source) -> None:
    """The node has it, with all its units."""
    source.show(linked=[0, 1, 2, 3])
    source.place.wait_for("4", "4")


@pytest.mark.parametrize("name", ["linked-first", "linked-second"])
def test_a_pod_has_units_that_are_linked(source: Source, name: str) -> None:
    """Whichever pair it is; what they bring is mounted, read-only."""
    place = source.place
    place.start_pod(
        name, place.ground.small_image, ["/bin/sh", "-c", f"trap exit TERM; {READ} & wait"], user=0, count=2
    )
    text = place.log_with(name, "units ")
    assert text.startswith("it is mounted\n")
    assert "Read-only file system" in text
    assert set(text.splitlines()[-1].removeprefix("units ").split(",")) in ({"0", "2"}, {"1", "3"})


def test_a_resource_goes_while_the_agent_runs(source: Source) -> None:
    """The node has none at once, another resource comes, and pods live on."""
    source.show(other=[0])
    source.place.wait_for("0", "0")
    Place(source.place.ground, source.place.node, "driverwright.io/other").wait_for("1", "1")
    for name in ("linked-first", "linked-second"):
        assert source.place.pod(name)["status"]["phase"] == "Running"
        source.place.delete_pod(name)
