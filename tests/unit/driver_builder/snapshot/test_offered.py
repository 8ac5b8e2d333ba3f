"""What a Node's annotation says that its agent offers: only names that may be its, within bounds."""

import json
from typing import Any

import pytest

from driver_builder.objects.node_keys import LONGEST
from driver_builder.snapshot.inventory import read_node
from driver_builder.snapshot.offered import MAX_NAMES, offered_on
from kube_api.names import GPU_PROFILE_ANNOTATION


def said(resources: Any, **more: Any) -> str:
    """Write the annotation as the agent does."""
    return json.dumps({"asked": "a", "applied": "a", "message": "", "resources": resources, **more})


CASES = [
    pytest.param(said(["nvidia.com/gpu.shared"]), ("nvidia.com/gpu.shared",), id="one"),
    pytest.param(said(["nvidia.com/l4", "nvidia.com/gpu", "nvidia.com/l4"]), ("nvidia.com/gpu", "nvidia.com/l4"),
                 id="several, one twice"),
    pytest.param(said(["cpu", "nvidia.com/gpu"]), ("nvidia.com/gpu",), id="what every node has"),
    pytest.param(said(["example.com/gpu", "nvidia.com.evil/gpu", "nvidia.com"]), (), id="other domains"),
    pytest.param(said(["nvidia.com/", "nvidia.com/a/b", "nvidia.com/a b", "nvidia.com/" + "a" * 64]), (),
                 id="no names"),
    pytest.param(said([1, None, ["nvidia.com/gpu"], {"nvidia.com/gpu": 1}]), (), id="no texts"),
    pytest.param(said({"nvidia.com/gpu": 1}), (), id="no list"),
    pytest.param(said([]), (), id="nothing"),
    pytest.param("{}", (), id="without names"),
    pytest.param("[]", (), id="no object"),
    pytest.param("null", (), id="null"),
    pytest.param("", (), id="empty"),
    pytest.param("{", (), id="no JSON"),
    pytest.param("[" * 5000, (), id="deep"),
    pytest.param(said(["nvidia.com/gpu"], message="x" * LONGEST[GPU_PROFILE_ANNOTATION]), (), id="too long"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_names_that_count(text: str, expected: tuple[str, ...]) -> None:
    """A node writes the annotation: anything else counts as none."""
    assert offered_on({GPU_PROFILE_ANNOTATION: text}) == expected


def test_there_are_only_so_many_names() -> None:
    """The rest is left out."""
    names = [f"nvidia.com/g{number}" for number in range(3 * MAX_NAMES)]
    assert len(offered_on({GPU_PROFILE_ANNOTATION: said(names)})) == MAX_NAMES


def test_of_the_annotation_the_names_alone_are_kept() -> None:
    """Thousands of nodes have one, with a message."""
    text = said(["nvidia.com/gpu"], message="x" * 900)
    annotations = {GPU_PROFILE_ANNOTATION: text, "driverwright.io/boot-id": "b"}
    found = read_node({"metadata": {"name": "a", "annotations": annotations}})
    assert found.offered == ("nvidia.com/gpu",)
    assert found.annotations == {"driverwright.io/boot-id": "b"}
    assert read_node({"metadata": {"name": "a"}}).offered == ()
