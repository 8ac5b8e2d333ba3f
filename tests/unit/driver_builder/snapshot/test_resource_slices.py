"""What is read of ResourceSlices, as API servers of 1.34 and later write them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.snapshot.resource_slices import NodeSlice, read_slice

RECORDED: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[3] / "data" / "resource_slices.yaml").read_text()
)
TEN = 1795946400.0
"""10 o'clock of 2026-11-29."""


@pytest.mark.parametrize("recorded", RECORDED, ids=[item["slice"]["metadata"]["name"] for item in RECORDED])
def test_a_recorded_slice(recorded: dict[str, Any]) -> None:
    """Whose it is, on which node, since when, and whether there is a device; nothing of one without a node."""
    of = recorded["of"]
    wanted = of and NodeSlice(driver=of["driver"], node=of["node"], created_at=TEN, has_devices=of["devices"])
    assert read_slice(recorded["slice"]) == wanted


@given(st.dictionaries(st.sampled_from(["driver", "nodeName", "devices"]), st.none() | st.text() | st.integers()))
def test_what_is_no_name_makes_no_slice(spec: dict[str, Any]) -> None:
    """Whatever else stands there."""
    found = read_slice({"metadata": {"name": "a"}, "spec": spec})
    names = [spec.get(name) for name in ("driver", "nodeName")]
    assert (found is not None) == all(isinstance(name, str) and name for name in names)
